"""What a prompt says of each kind of answer. That it is whole and safe is in test_metrics.py."""

import pytest

from localjudge.answers import Labels, Open, Scale, Text
from localjudge.labels import Label
from localjudge.messages import Messages
from localjudge.metrics import Example, Metric, classifier, scorer

OPEN = Metric(
    name="subject",
    inputs={"text": "text"},
    answers=Open("choices", (Label("other", "None fits."),)),
    user="From:\n{choices}\n\nText:\n{text}",
    examples=(Example({"choices": "red\nblue\nother", "text": "Sky."}, "It is blue.", "blue"),),
)


def text_metric(**limits) -> Metric:
    example = Example({"text": "x"}, "Why.", "The user wants tea.")
    answers = Text("The user", **limits)
    return Metric(
        name="sum", inputs={"text": "text"}, answers=answers, user="{text}", examples=(example,)
    )


def test_labels_of_a_row_stand_in_its_message_and_one_form_stands_for_all():
    messages = Messages(OPEN)
    assert (
        "Answers:\n"
        "- a label of the list that the message gives\n"
        '- "other": None fits.\n' in messages.system
    )
    assert 'From:\n> red\n> blue\n> other\n\nText:\n> Sky.\n{"output": "blue"}' in messages.system
    assert messages.system.endswith('in place of <label>:\n{"output": "<label>"}')
    assert messages.user({"choices": "a\nb", "text": "t"}) == (
        'From:\n> a\n> b\n\nText:\n> t\n\nAnswer with {"output": "<label>"}.'
    )


def test_the_frame_of_labels_of_a_row_is_the_same_for_all_rows():
    messages = Messages(OPEN)
    assert messages.user_head == "From:\n"


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (
            {"max_sentences": 2, "max_words": 30},
            '- a text of at most 2 sentences and 30 words, which begins with "The user"\n'
            "- at most 15 words a sentence if there is more than one\n",
        ),
        (
            {"max_sentences": 1, "max_words": 20},
            '- a text of one sentence of at most 20 words, which begins with "The user"\n'
            "- no quotation marks",
        ),
    ],
)
def test_the_limits_of_a_text_are_written_from_its_declaration(limits, says):
    messages = Messages(text_metric(**limits))
    assert says in messages.system
    assert messages.system.endswith('{"output": "The user ..."}')
    assert messages.user({"text": "t"}) == '> t\n\nAnswer with {"output": "The user ..."}.'


def test_a_text_without_a_beginning_is_only_dots():
    metric = Metric(name="m", inputs={"t": "t"}, answers=Text(max_words=9), user="{t}")
    assert "begins with" not in Messages(metric).system
    assert Messages(metric).system.endswith('{"output": "..."}')


def test_a_text_is_asked_for_without_explanation():
    metric = text_metric(max_sentences=1, max_words=20)
    assert Messages(metric, explain=True).system == Messages(metric).system
    assert Messages(metric, explain=True).user({"text": "t"}) == Messages(metric).user(
        {"text": "t"}
    )


def test_an_explanation_comes_first_in_form_and_examples():
    example = Example({"text": "Hey."}, 'It says "Hey".', "casual")
    labels = {"formal": "", "casual": ""}
    metric = classifier("m", labels, inputs=["text"], user="{text}", examples=[example])
    system = Messages(metric, explain=True).system
    assert '\n{"explanation": "It says \\"Hey\\".", "output": "casual"}\n' in system
    assert system.endswith(
        "in place of the dots, explain in one or two sentences what decides:\n"
        '{"explanation": "...", "output": "formal"}\n'
        '{"explanation": "...", "output": "casual"}'
    )
    assert (
        Messages(metric, explain=True)
        .user({"text": "t"})
        .endswith('Answer with the explanation first, then the output: "formal" or "casual".')
    )


def test_an_example_without_a_reason_is_not_shown_where_explanations_are_asked_for():
    examples = [Example({"text": "Hey."}, " ", "a"), Example({"text": "Sir."}, "Polite.", "b")]
    metric = classifier("m", {"a": "", "b": ""}, inputs=["text"], user="{text}", examples=examples)
    assert "Hey." in Messages(metric).system
    explained = Messages(metric, explain=True).system
    assert "Hey." not in explained
    assert "Example 1\n> Sir.\n" in explained


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (Scale(1, 50), "then the output: an integer from 1 to 50."),
        (Labels.of(f"label {n}" for n in range(60)), "one of the 60 answers listed above."),
    ],
)
def test_the_reminder_of_an_explanation_stays_short(answers, says):
    metric = Metric(name="m", inputs={"t": "t"}, answers=answers, user="{t}")
    assert Messages(metric, explain=True).user({"t": "x"}).endswith(says)


def test_an_input_that_is_absent_is_said_to_be_so_where_no_row_could_say_it():
    metric = scorer("m", {1: "", 2: ""}, inputs=["a", "b"], user="A: {a}\nB: {b}")
    assert (
        Messages(metric)
        .user({"a": "(none given)"})
        .startswith("A:\n> (none given)\nB:\n(none given)\n")
    )
