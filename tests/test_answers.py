"""Answer spaces: what is declared is what is allowed, letter by letter."""

import json
import re

import pytest

from localjudge.answers import Labels, Open, Scale, Text, document
from localjudge.errors import MetricError
from localjudge.labels import Label


def test_documents_hold_real_characters_and_parse_back_exactly():
    labels = Labels.of(["开心", "très bon", "n/a", 'say "no"', "C:\\tmp", "a|b", "5+", "(none)"])
    for value, text in zip(labels.values, labels.documents, strict=True):
        assert json.loads(text) == {"output": value}
        assert labels.parse(text) == value
        assert re.fullmatch(labels.pattern, text)
    assert "\\u" not in "".join(labels.documents)


@pytest.mark.parametrize(
    "text",
    [
        "irrelevant",  # not JSON, though it contains a label
        "The sentiment is relevant.",
        '{"output": "Relevant"}',
        '{"output": " relevant"}',
        '{"output": "relevant", "output2": 1}',
        '{"label": "relevant"}',
        '{"output": ["relevant"]}',
        '{"output": null}',
        "",
        '{"output": "rel',
        "[" * 100_000,
    ],
)
def test_only_an_allowed_document_is_an_answer(text):
    with pytest.raises(ValueError, match=r"JSON|allowed"):
        Labels.of(["relevant", "irrelevant"]).parse(text)


@pytest.mark.parametrize("text", ["6", "0", "-3", '"4"', "true", "4.0", "1e0", "null"])
def test_a_scale_takes_its_integers_and_nothing_that_resembles_them(text):
    with pytest.raises(ValueError):
        Scale(1, 5).parse(f'{{"output": {text}}}')
    assert Scale(1, 5).parse('{"output": 4}') == 4


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([], "nothing to decide"),
        (["yes"], "nothing to decide"),
        (["yes", "yes"], "declared twice"),
        (["Yes", "yes"], "differ only in case"),
        (["caf\u00e9", "cafe\u0301"], "differ only in case or Unicode form"),
        (["yes", "yes "], "spaces at its ends"),
        (["", "no"], "blank"),
        (["  ", "no"], "blank"),
        (["a\nb", "no"], "control character"),
        (["a\x00b", "no"], "control character"),
        (["a\u2028b", "no"], "line break"),
        (["a\ud800", "no"], "lone surrogate"),
        ([True, "no"], "not text"),
        ([1, "no"], "not text"),
    ],
)
def test_label_lists_that_cannot_be_told_apart_are_refused(labels, says):
    with pytest.raises(MetricError, match=says) as caught:
        Labels.of(labels)
    assert caught.value.field.startswith("answers.labels")


def test_a_label_score_must_be_finite():
    with pytest.raises(MetricError, match="finite"):
        Labels((Label("a", score=float("nan")), Label("b")))


@pytest.mark.parametrize(("low", "high"), [(5, 1), (3, 3), (True, 5), (1.0, 5)])
def test_a_scale_needs_two_integers_in_order(low, high):
    with pytest.raises(MetricError):
        Scale(low, high)


def test_a_scale_from_meanings_has_no_gaps():
    assert Scale.of({2: "b", 1: "a", 3: "c"}).meanings == ("a", "b", "c")
    with pytest.raises(MetricError, match=r"no meaning for \[2\]"):
        Scale.of({1: "a", 3: "c"})
    with pytest.raises(MetricError, match="empty"):
        Scale.of({})


def test_expected_score_is_the_mean_under_the_distribution():
    # 0.2 * 1 + 0.3 * 2 + 0.5 * 3 = 2.3
    assert Scale(1, 3).expected_score([0.2, 0.3, 0.5]) == pytest.approx(2.3)
    half = Labels((Label("a", score=1.0), Label("b")))
    assert half.expected_score([0.5, 0.5]) is None
    assert (half.score("a"), half.score("b")) == (1.0, None)


TOPICS = Open("choices", (Label("other", "None fits.", 0.0),))


def test_labels_of_a_row_are_followed_by_those_that_are_always_there():
    assert TOPICS.close(["a", "b"]).values == ("a", "b", "other")
    assert TOPICS.close({"a": "x", "b": Label("b", "y")}).meanings == ("x", "y", "None fits.")


@pytest.mark.parametrize("spelling", ["other", "Other", "\uff4fther"])
def test_a_list_may_place_a_standing_label_and_it_keeps_its_meaning(spelling):
    closed = TOPICS.close([spelling, "a"])
    assert closed.labels == (Label(spelling, "None fits.", 0.0), Label("a"))
    assert TOPICS.close({"other": "Mine.", "a": ""}).meanings == ("Mine.", "")


@pytest.mark.parametrize("labels", [["a", "A"], ["other", "other"], [" "], [1]])
def test_labels_of_a_row_must_be_told_apart_too(labels):
    with pytest.raises(MetricError):
        TOPICS.close(labels)


SUMMARY = Text("The user", max_sentences=2, max_words=12)


@pytest.mark.parametrize(
    "text",
    [
        "The user asked.",
        "The user asked what one two three four five six seven eight?",
        "The user asked for tea. The answer was no.",
        "The user asked what that is. The answer gave no help there!",
        "The user fragte nach Straßen 开心, très bon.",
    ],
)
def test_a_text_within_its_limits_is_an_answer(text):
    assert SUMMARY.parse(document(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "The user.",
        "The user asked",
        "A user asked.",
        "The user asked what one two three four five six seven eight nine?",
        "The user asked what that thing is. No.",
        "The user asked. The answer gave no help to them there!",
        "The user asked. He did. No.",
        "The user asked for 3.5 apples.",
        "The user  asked.",
        "The user asked .",
        'The user said "no".',
        "The user asked.\nNo.",
        "",
    ],
)
def test_a_text_beyond_its_limits_is_no_answer(text):
    with pytest.raises(ValueError, match="limits"):
        SUMMARY.parse(document(text))


def test_a_text_without_a_beginning_or_with_one_sentence():
    assert Text(max_words=2).parse(document("One two.")) == "One two."
    for text in ("One two three.", "One. Two."):
        with pytest.raises(ValueError, match="limits"):
            Text(max_words=2).parse(document(text))


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"max_sentences": 0}, "no room"),
        ({"begins": "The user", "max_words": 2}, "no room"),
        ({"begins": "The user", "max_words": 5, "max_sentences": 2}, "no room"),
        ({"begins": "The user. It"}, "plain beginning"),
        ({"begins": "The  user"}, "plain beginning"),
        ({"begins": 'The "user"'}, "plain beginning"),
    ],
)
def test_limits_that_leave_no_text_are_refused(limits, says):
    with pytest.raises(MetricError, match=says) as caught:
        Text(**limits)
    assert caught.value.field.startswith("answers.text")
