"""The start-up check: a pattern that outlines_core reads otherwise stops before any row."""

import re

import pytest

from localjudge.answers import Text
from localjudge.errors import TokenizerError
from localjudge.patterns import check_pattern, check_text


def test_a_pattern_that_is_read_as_meant_passes():
    check_pattern("(yes|no)( indeed)?!", ["yes!", "no indeed!"], ["yes", "indeed!", "", "yes!!"])


def test_texts_beyond_ascii_are_tried_byte_by_byte():
    check_pattern("[^a]+!", ["é你🎉!"], ["éa!"])
    with pytest.raises(TokenizerError, match="does not allow 'é'"):
        check_pattern("[a-z]", ["é"], [])


def test_an_alternative_out_of_reach_is_found():
    # outlines_core ends at the shorter of two alternatives of which one begins the other.
    assert re.fullmatch("(1|10)", "10")
    with pytest.raises(TokenizerError, match="does not allow '10'"):
        check_pattern("(1|10)", ["1", "10"], ["100"])


def test_a_pattern_that_allows_too_much_is_found():
    with pytest.raises(TokenizerError, match="it allows '11'"):
        check_pattern("[0-9]+", ["1", "10"], ["11"])


@pytest.mark.parametrize(
    "limits", [Text(), Text("The user", 2, 30), Text("", 1, 1), Text("The", 4, 9), Text("", 3, 3)]
)
def test_the_pattern_of_a_text_passes(limits):
    check_text(limits)


@pytest.mark.parametrize(
    "change",
    [
        lambda pattern: pattern.replace("{1,15}", "{1,14}"),  # the second sentence too short
        lambda pattern: pattern.replace("{1,15}", "{1,16}"),  # and too long
        lambda pattern: pattern.replace("{1,28}", "{1,27}"),  # one sentence too short
        lambda pattern: pattern.replace("{1,28}", "{1,}"),  # the bound is dropped
        lambda pattern: pattern.replace("{1,28}", "{0,28}"),  # no word behind the beginning
        lambda pattern: pattern.replace("{1,13}", "{1,12}"),  # the first of two too short
        lambda pattern: pattern.replace("{1,1})", "{1,2})"),  # a sentence too many
        lambda pattern: pattern.replace("{1,1})", "{0,0})"),  # the second sentence out of reach
        lambda pattern: pattern.removesuffix('"'),  # not closed
        lambda pattern: pattern.replace(r"[^\s", "[^\\s\u0080-\U0010ffff"),  # ASCII only
    ],
)
def test_a_pattern_of_a_text_with_another_reading_is_found(monkeypatch, change):
    limits = Text("The user", 2, 30)
    pattern = limits.pattern
    assert change(pattern) != pattern
    monkeypatch.setattr(Text, "pattern", change(pattern))
    with pytest.raises(TokenizerError, match="does not read the pattern as declared"):
        check_text(limits)
