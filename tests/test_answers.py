"""Answer spaces: what is declared is what is allowed, letter by letter."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outlines_core import Index, Vocabulary

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
        (["caf\u00e9", "cafe\u0301"], "differ only in case, in Unicode form"),
        (["yes", "y\u200bes"], r"'yes' and 'y\\u200bes' differ .* not seen"),
        (["soft", "so\u00adft"], "not seen"),
        (["\u2764", "\u2764\ufe0f"], "not seen"),
        (["a", "\u200b\u2060"], "blank"),
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
    with pytest.raises(MetricError, match=r"no meaning for 2$"):
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


TEXTS = {
    "summary": Text("The user", 2, 30),
    "one sentence": Text("", 1, 5),
    "three sentences": Text("", 3, 9),
    "the least": Text("", 1, 1),
    "not ASCII": Text("Der Käufer", 2, 8),
}


def within(limits: Text, text: str) -> bool:
    """What the limits say, counted without a pattern."""
    if not text.startswith(limits.begins) or text != " ".join(text.split()):
        return False
    if any(mark in text for mark in ('"', "\\", "\x00", "\x7f")):
        return False
    sentences = re.findall(r"[^.!?]+[.!?]", text)
    if "".join(sentences) != text or not 1 <= len(sentences) <= limits.max_sentences:
        return False
    if any(not sentence.startswith(" ") for sentence in sentences[1:]):
        return False
    lengths = [len(sentence.split()) for sentence in sentences]
    # `The user.` or `The users.` does not go on from the beginning with a word of its own.
    begun = len(limits.begins.split())
    if begun and (lengths[0] <= begun or not text.startswith(f"{limits.begins} ")):
        return False
    if any(sentence[:-1].endswith(" ") for sentence in sentences):
        return False
    if len(lengths) > 1 and max(lengths) > limits.max_words // limits.max_sentences:
        return False
    return sum(lengths) <= limits.max_words


def of_lengths(begins: str, *lengths: int, word: str = "wörd", stop: str = ".") -> str:
    words = [[word] * length for length in lengths]
    words[0][: len(begins.split())] = begins.split()
    return " ".join(" ".join(sentence) + stop for sentence in words)


@pytest.fixture(params=TEXTS.values(), ids=TEXTS, scope="module")
def limits(request):
    return request.param


@pytest.fixture(scope="module")
def accepts(limits):
    vocabulary = Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)})
    index = Index(limits.pattern, vocabulary)

    def accepts(written: str) -> bool:
        state = index.get_initial_state()
        for byte in written.encode():
            state = index.get_next_state(state, byte)
            if state is None:
                return False
        return index.is_final_state(state)

    return accepts


def check_text(limits: Text, accepts, text: str) -> bool:
    """Hold Python's reading, outlines_core's and the count against each other."""
    allowed = within(limits, text)
    if not text.startswith(limits.begins):
        return allowed  # the beginning is not written but given
    written = text.removeprefix(limits.begins) + '"'
    assert bool(re.fullmatch(limits.pattern, written)) == allowed, text
    assert accepts(written) == allowed, text
    try:
        assert limits.parse(document(text)) == text
        assert allowed, text
    except ValueError:
        assert not allowed, text
    return allowed


def test_a_text_may_have_every_number_of_words_and_sentences_within_the_limits(limits, accepts):
    begun, share = len(limits.begins.split()), limits.max_words // limits.max_sentences
    for stop in ".!?":
        for words in range(begun + 1, limits.max_words + 1):
            assert check_text(limits, accepts, of_lengths(limits.begins, words, stop=stop))
        for sentences in range(2, limits.max_sentences + 1):
            full = of_lengths(limits.begins, *[share] * sentences, stop=stop)
            assert check_text(limits, accepts, full)
            short = of_lengths(limits.begins, begun + 1, *[1] * (sentences - 1), stop=stop)
            assert check_text(limits, accepts, short)


def test_one_word_or_sentence_more_than_the_limits_is_refused(limits, accepts):
    begun, share = len(limits.begins.split()), limits.max_words // limits.max_sentences
    beyond = [
        of_lengths(limits.begins, limits.max_words + 1),
        of_lengths(limits.begins, *[share] * (limits.max_sentences - 1), share + 1),
        of_lengths(limits.begins, begun + 1, *[1] * limits.max_sentences),
        of_lengths(limits.begins, begun),
        limits.begins,
        "",
    ]
    for text in beyond:
        assert not check_text(limits, accepts, text)


@settings(max_examples=300, deadline=None)
@given(
    st.text(st.sampled_from('ab é你🎉.!?"\\\n\x00\x7f\u00a0\u2028'), max_size=14),
    st.lists(st.integers(0, 16), min_size=1, max_size=4),
)
def test_any_text_is_read_alike_by_both_and_as_counted(limits, accepts, end, lengths):
    begun = len(limits.begins.split())
    lengths[0] += begun
    for text in (
        f"{limits.begins}{end}",
        f"{limits.begins} {end}.".strip(),
        of_lengths(limits.begins, *lengths) + end,
    ):
        check_text(limits, accepts, text)


@pytest.mark.parametrize("stop_inside", ["3.5", "e.g", "U.S", "what?!", "...", "a.b"])
def test_stops_stand_nowhere_else(stop_inside):
    with pytest.raises(ValueError, match="limits"):
        Text("The user", 2, 30).parse(document(f"The user named {stop_inside} and left."))


@pytest.mark.parametrize(
    "text",
    [
        "The user asked",
        '{"output": "The user asked."',
        '{"output": "the user asked."}',
        '{"output": "The users asked."}',
        '{"output":"The user asked."}',
        '{"output": "The user asked."}\n',
        '{"output": "The user \\"asked\\"."}',
        '{"output": "The user\\nasked."}',
        '{"output": ""}',
        '{"output": 1}',
    ],
)
def test_a_text_is_read_strictly(text):
    with pytest.raises(ValueError, match="limits"):
        Text("The user", 2, 30).parse(text)


@pytest.mark.parametrize(
    ("begins", "sentences", "words", "field"),
    [
        ("", 0, 30, "answers.text"),
        ("", -1, 30, "answers.text"),
        ("", 1, 0, "answers.text"),
        ("", 3, 2, "answers.text"),
        ("The user", 1, 2, "answers.text"),
        ("The user", 2, 5, "answers.text"),
        ("The user.", 1, 30, "answers.text.begins"),
        ("The  user", 1, 30, "answers.text.begins"),
        (" The user", 1, 30, "answers.text.begins"),
        ("The user ", 1, 30, "answers.text.begins"),
        ('The "user"', 1, 30, "answers.text.begins"),
        ("The\\user", 1, 30, "answers.text.begins"),
        ("The\nuser", 1, 30, "answers.text.begins"),
        ("The\x00user", 1, 30, "answers.text.begins"),
    ],
)
def test_limits_that_leave_no_room_are_refused(begins, sentences, words, field):
    with pytest.raises(MetricError) as caught:
        Text(begins, sentences, words)
    assert caught.value.field == field
    assert caught.value.hint


def test_a_text_has_neither_score_nor_a_list_of_values():
    text = Text("The user", 2, 30)
    assert (text.kind, text.values, text.scores) == ("text", (), ())
    assert text.score("The user asked.") is text.expected_score([]) is None
    assert all(json.loads(shown)["output"].startswith("The user") for shown in text.documents)


def test_an_open_list_is_closed_with_the_standing_labels_at_its_end():
    topics = Open("choices", (Label("other", "None of them."),))
    assert topics.close(["tax", "visa"]).values == ("tax", "visa", "other")
    assert topics.close(["tax", "visa"]).meanings == ("", "", "None of them.")
    assert topics.close({"tax": "Money."}).meanings == ("Money.", "None of them.")
    assert topics.close(["other", "tax"]).values == ("other", "tax")
    assert (topics.kind, topics.values, topics.scores) == ("classify", ("other",), (None,))


@pytest.mark.parametrize("labels", [[], ["one"], ["a", "A"], ["a", " "], ["a", "b\n"], ["a", 1]])
def test_an_open_list_is_held_to_what_labels_are_held_to(labels):
    with pytest.raises(MetricError):
        Open("choices").close(labels)


def test_what_stands_behind_an_explanation_makes_the_document_whole():
    for space in (Labels.of(["a", 'say "no"', "开心"]), Scale(1, 10)):
        for value, ending in zip(space.values, space.endings, strict=True):
            whole = f'{{"explanation": "Because.{ending}'
            assert whole == document(value, "Because.")
            assert json.loads(whole) == {"explanation": "Because.", "output": value}
