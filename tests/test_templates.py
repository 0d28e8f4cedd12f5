import datetime
import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localjudge.errors import DataError
from localjudge.templates import _LINE_BREAKS, Template, as_text, quote

# Any text, and text dense in what could break a block: breaks, marks, braces.
texts = st.text() | st.text(st.sampled_from("a >{}" + _LINE_BREAKS))


def unquote(block: str) -> str:
    lines = block.splitlines(keepends=True)
    return "".join(line.removeprefix(">").removeprefix(" ") for line in lines)


def test_line_breaks_are_those_of_splitlines():
    every = map(chr, range(sys.maxunicode + 1))
    assert set(_LINE_BREAKS) == {char for char in every if len(f"a{char}b".splitlines()) == 2}


@settings(deadline=None)
@given(texts)
def test_quoting_can_be_undone_exactly(text):
    assert unquote(quote(text)) == text


@settings(deadline=None)
@given(texts)
def test_every_quoted_line_begins_with_the_mark_and_the_block_ends_inside_a_line(text):
    assert all(line.startswith(">") for line in quote(text).splitlines())
    assert quote(text)[-1] not in _LINE_BREAKS


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("a", "> a"),
        ("", ">"),
        (" ", ">  "),
        ("a\n\nb", "> a\n>\n> b"),
        ("a\n", "> a\n>"),
        ("a\r\nb\r", "> a\r\n> b\r>"),
        ("a\u2028b\x85c", "> a\u2028> b\x85> c"),
        ("> a", "> > a"),
    ],
)
def test_quote_marks_every_line(text, block):
    assert quote(text) == block


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("  as it is\n", "  as it is\n"),
        ("None", "None"),
        ("nan", "nan"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-1.5, "-1.5"),
        ({"b": "é你", "a": [1, None, True]}, '{"b": "é你", "a": [1, null, true]}'),
        ([], None),
        ({}, None),
        (None, None),
        (math.nan, None),
        ("", None),
        (" \t\n\u2003", None),
    ],
)
def test_a_cell_reads_as_one_text_or_is_missing(value, text):
    assert as_text(value) == text


@pytest.mark.parametrize(
    "value", [b"bytes", datetime.date(2024, 1, 1), {"a": {1, 2}}], ids=["bytes", "date", "set"]
)
def test_a_value_without_one_reading_is_refused(value):
    with pytest.raises(DataError, match=type(value).__name__) as caught:
        as_text(value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    ['{"label": "x"}', "{0}", "{ name }", "{}", "{a.b}", "{a!r}", "{a:d}", "%s ${HOME!r}", "{é}"],
)
def test_other_braces_are_plain_text(text):
    assert Template.parse(text) == Template(text, ())


def test_doubled_braces_print_a_name_in_braces():
    template = Template.parse("{{name}} is {name}, { {name} }")
    assert template.fill({"name": "x"}) == "{name} is x, { x }"
    assert template.names == ("name", "name")


def test_values_are_never_expanded():
    template = Template.parse("{a} {b}")
    assert template.fill({"a": "{b} {{b}}", "b": "{a}"}) == "{b} {{b}} {a}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{a}", "*"),
        ("Q:\n{a}\nend", "Q:\n*\nend"),
        ("Q: {a} end", "Q:\n*\nend"),
        ("{a}{a}", "*\n*"),
        ("{a} \t{a}", "*\n*"),
        ("{a}\n\n{a}", "*\n\n*"),
        ("  {a}  ", "*"),
        ("Q: {a}\n\nA: {a}.", "Q:\n*\n\nA:\n*\n."),
    ],
)
def test_blocks_stand_on_lines_of_their_own(text, expected):
    assert Template.parse(text).for_blocks().fill({"a": "*"}) == expected


@settings(deadline=None)
@given(texts | st.text(st.sampled_from("{}ab")))
def test_a_text_that_is_fixed_in_a_template_is_printed_as_it_is(text):
    template = Template.parse(Template.parse("{a} {b}").fixed({"a": text}))
    assert template.names == ("b",)
    assert template.fill({"b": "x"}) == f"{text} x"
