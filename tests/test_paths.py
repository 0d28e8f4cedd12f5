"""Paths into nested values: what is there is found, and what is not there is missing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localjudge.paths import is_reachable, lookup, steps

ROW = {
    "output": "plain",
    "attributes": {
        "output": {"value": "nested"},
        "input.value": "a key with a dot",
        "llm": {"token.count": {"total": 7}},
        "nothing": None,
    },
    "documents": [{"text": "first"}, {"text": "last", "tags": ["a", ["b", "c"]]}],
    "documents[0].text": "a column of this very name",
    "a.b": {"c": "the longer key wins", "d": 1},
    "a": {"b": {"c": "no", "e": 2}, "b.c": "no"},
    "words": "text",
    "": "a column without a name",
    "x y": {"z": 3},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("output", "plain"),
        ("attributes.output.value", "nested"),
        ("attributes.input.value", "a key with a dot"),
        ("attributes.llm.token.count.total", 7),
        ("attributes.nothing", None),
        ("documents[1].text", "last"),
        ("documents[-1].text", "last"),
        ("documents[-2].text", "first"),
        ("documents[1].tags[1][0]", "b"),
        ("documents[0].text", "a column of this very name"),
        ("a.b", {"c": "the longer key wins", "d": 1}),
        ("a.b.c", "the longer key wins"),
        ("x y.z", 3),
        ("", "a column without a name"),
    ],
)
def test_what_is_there_is_found(path, value):
    assert lookup(ROW, path) == value


@pytest.mark.parametrize(
    "path",
    [
        "no_such_column",
        "attributes.no.such",
        "attributes.nothing.more",
        "documents[2].text",
        "documents[-3].text",
        "documents.text",
        "documents.0.text",
        "attributes[0]",
        "attributes[output]",
        "words[0]",
        "words.text",
        "output.value",
        "a.b.e",  # the longer key was taken, and is not left again
    ],
)
def test_what_is_not_there_is_missing(path):
    assert lookup(ROW, path) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("a[0]", ("a", 0)),
        ("a[-1][2].b", ("a", -1, 2, "b")),
        ("a b.c d", ("a b", "c d")),
        ("é.你", ("é", "你")),
    ],
)
def test_a_path_is_keys_and_indices(path, expected):
    assert steps(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        ".a",
        "a.",
        "a..b",
        "[0]",
        "[0].a",
        "a[0]b",
        "a.[0]",
        "a[",
        "a[]",
        "a[x]",
        "a[0",
        "a]0[",
        "a[1.5]",
        "a[١]",
        "a[" + "9" * 5000 + "]",
        "a[0]]",
        "a['b']",
        "\n",
    ],
)
def test_a_text_that_is_no_path_is_one_key(path):
    assert steps(path) == (path,)
    assert lookup({"a": [1], path: "here"}, path) == "here"
    assert lookup({"a": [1]}, path) is None


@pytest.mark.parametrize("path", ["a" + ".b" * 5000, "a" + "[0]" * 5000, "." * 5000])
def test_a_path_as_long_as_you_like_is_only_missing(path):
    assert lookup({"a": {"b": {"b": 1}}}, path) is None
    assert lookup({"a": [[1]]}, path) is None


@pytest.mark.parametrize(
    "path", ["a.__class__", "a.keys", "__class__", "a.__class__.__init__", "a[0].__globals__"]
)
def test_a_path_reads_data_and_nothing_else(path):
    assert lookup({"a": {"b": 1}}, path) is None


nested = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab", min_size=1, max_size=2), inner, max_size=3)
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text("ab", min_size=1, max_size=2), nested, max_size=3))
def test_every_value_is_found_by_its_path(row):
    def walk(value, path):
        yield path, value
        if isinstance(value, dict):
            for key, item in value.items():
                yield from walk(item, f"{path}.{key}")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from walk(item, f"{path}[{index}]")
                yield from walk(item, f"{path}[{index - len(value)}]")

    for column, value in row.items():
        for path, found in walk(value, column):
            assert lookup(row, path) == found


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab.[]-01 "), max_size=10), nested)
def test_no_path_fails(path, value):
    lookup({"a": value, "b": [value, {"a": value}]}, path)


@pytest.mark.parametrize("path", ["output", "output.x", "a.b.c", "documents[3].text", "x[0]"])
def test_a_path_is_reachable_if_a_column_is_its_name_or_its_root(path):
    assert is_reachable({"output", "a.b", "documents", "x[0]"}, path)


@pytest.mark.parametrize("path", ["outputs", "a", "a.c", "x", "x[1]", "", "[0]", "document[0]"])
def test_a_path_without_a_column_at_its_root_is_not_reachable(path):
    assert not is_reachable({"output", "a.b", "documents", "x[0]"}, path)
