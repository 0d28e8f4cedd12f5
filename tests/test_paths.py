import pytest

from localjudge.paths import is_reachable, lookup

ROW = {
    "attributes": {"output": {"value": "nested"}, "llm.model": "small"},
    "output.value": "flat",
    "output": {"value": "deep", "mime": "text"},
    "documents": [{"text": "first"}, {"text": "last"}],
    "a[0]": "named so",
    "a": ["item"],
    "empty": None,
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("attributes.output.value", "nested"),
        ("attributes.llm.model", "small"),
        ("output.value", "flat"),  # the column of this very name wins
        ("output.mime", "text"),
        ("documents[0].text", "first"),
        ("documents[-1].text", "last"),
        ("documents[2].text", None),
        ("documents.text", None),
        ("documents", ROW["documents"]),
        ("a[0]", "named so"),
        ("a[1]", None),
        ("attributes[0]", None),
        ("empty.more", None),
        ("nowhere.at.all", None),
        ("attributes..output", None),
        ("[0]", None),
        (".", None),
        ("", None),
    ],
)
def test_a_path_leads_to_one_value_or_none(path, value):
    assert lookup(ROW, path) == value


@pytest.mark.parametrize("path", ["output", "output.x", "a.b.c", "documents[3].text", "x[0]"])
def test_a_path_is_reachable_if_a_column_is_its_name_or_its_root(path):
    assert is_reachable({"output", "a.b", "documents", "x[0]"}, path)


@pytest.mark.parametrize("path", ["outputs", "a", "a.c", "x", "x[1]", "", "[0]", "document[0]"])
def test_a_path_without_a_column_at_its_root_is_not_reachable(path):
    assert not is_reachable({"output", "a.b", "documents", "x[0]"}, path)
