import dataclasses
import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localjudge.answers import Open
from localjudge.errors import ConfigError, DataError, MetricError
from localjudge.labels import Label
from localjudge.messages import QUOTING_RULE, Messages
from localjudge.metrics import Example, Metric, classifier, load_metric, quote, scorer

FILE = '''
name = "grounded"
kind = "classify"
description = "Is it supported?"
direction = "maximize"

[inputs]
answer = "output"
context = "context"

[answers.labels]
supported = { score = 1, meaning = "All of it is there." }
unsupported = { score = 0, meaning = "Some of it is not." }

[prompt]
definition = """
Decide whether the answer is supported."""
steps = ["Read the context.", "Compare the answer with it."]
notes = ["Reply {like} this: {0}."]
user = """
Context:
{context}

Answer: {answer}
"""

[[examples]]
inputs = { answer = "Red.", context = "It is\\nred." }
reasoning = "The context says red."
output = "supported"
'''

PARTS = {
    "name": "grounded",
    "labels": {
        "supported": Label("supported", "All of it is there.", 1),
        "unsupported": Label("unsupported", "Some of it is not.", 0),
    },
    "inputs": {"answer": "output", "context": "context"},
    "user": "Context:\n{context}\n\nAnswer: {answer}\n",
    "definition": "Decide whether the answer is supported.",
    "description": "Is it supported?",
    "direction": "maximize",
    "steps": ["Read the context.", "Compare the answer with it."],
    "notes": ["Reply {like} this: {0}."],
    "examples": [
        Example({"answer": "Red.", "context": "It is\nred."}, "The context says red.", "supported")
    ],
}

SYSTEM = f"""\
Decide whether the answer is supported.

Steps:
1. Read the context.
2. Compare the answer with it.

Answers:
- "supported": All of it is there.
- "unsupported": Some of it is not.

Notes:
- Reply {{like}} this: {{0}}.

{QUOTING_RULE}

Example 1
Context:
> It is
> red.

Answer:
> Red.
{{"output": "supported"}}

Answer with exactly one of these JSON documents and nothing else:
{{"output": "supported"}}
{{"output": "unsupported"}}"""

texts = st.text() | st.text(st.sampled_from("a >{}\n\r\x0b\x1c\x85\u2028"))


def grounded(**changes) -> Metric:
    return classifier(**{**PARTS, **changes})


@pytest.fixture
def metric_file(tmp_path):
    path = tmp_path / "grounded.toml"
    path.write_text(FILE)
    return path


def test_a_file_and_the_same_parts_in_python_are_the_same_metric(metric_file):
    metric = load_metric(metric_file)
    assert metric.path == metric_file
    assert metric.kind == "classify"
    assert dataclasses.replace(metric, path=None) == grounded()
    assert metric.digest == grounded().digest


def test_windows_line_ends_make_no_other_metric(metric_file):
    digest = load_metric(metric_file).digest
    metric_file.write_bytes(FILE.replace("\n", "\r\n").encode())
    assert load_metric(metric_file).digest == digest


def test_an_error_in_a_file_names_file_and_field(metric_file):
    metric_file.write_text(FILE.replace('output = "supported"', 'output = "Supported"'))
    with pytest.raises(MetricError) as caught:
        load_metric(metric_file)
    assert caught.value.where == f"{metric_file}: examples[0].output"
    assert caught.value.hint == "did you mean 'supported'?"


def test_an_answer_space_error_names_the_file(metric_file):
    metric_file.write_text(FILE.replace("unsupported =", '"Supported" ='))
    with pytest.raises(MetricError) as caught:
        load_metric(metric_file)
    assert caught.value.path == str(metric_file)
    assert caught.value.field == "answers.labels.Supported"


def test_the_system_message_holds_every_part_in_order_and_the_format_last():
    assert Messages(grounded()).system == SYSTEM


def test_parts_that_are_not_given_leave_no_trace():
    metric = scorer("m", {1: "bad", 2: "good"}, inputs=["text"], user="{text}")
    assert metric.columns() == {"text": "text"}
    assert Messages(metric).system == (
        "Answers:\n- 1: bad\n- 2: good\n\n"
        f"{QUOTING_RULE}\n\n"
        "Answer with exactly one of these JSON documents and nothing else:\n"
        '{"output": 1}\n{"output": 2}'
    )


def test_a_whole_system_message_gets_the_generated_parts_in_its_places():
    whole = "Be strict. {{answers}}\n{answers}\n\nLike this:\n{examples}\nNow judge."
    sparse = {"definition": "", "steps": [], "notes": []}
    examples = [Example({"answer": "{examples}", "context": "{answers}"}, "", "supported")]
    text = Messages(grounded(system=whole, examples=examples, **sparse)).system
    assert text.startswith('Be strict. {answers}\nAnswers:\n- "supported": All')
    assert f"{QUOTING_RULE}\n\nAnswer with exactly one" in text
    assert "\n> {answers}\n" in text and "\n> {examples}\n" in text
    assert text.endswith('{"output": "supported"}\nNow judge.')


def test_the_user_message_quotes_every_text_and_ends_with_what_to_answer():
    assert Messages(grounded()).user({"answer": "a\n\n{context}", "context": "c"}) == (
        "Context:\n> c\n\nAnswer:\n> a\n>\n> {context}\n\n"
        "Answer with one of the JSON documents above."
    )


@settings(deadline=None)
@given(texts, texts)
def test_no_text_can_leave_its_block(answer, context):
    metric = grounded()
    text = Messages(metric).user({"answer": answer, "context": context})
    plain = Messages(metric).user({"answer": "a", "context": "c"})
    assert quote(answer) in text and quote(context) in text
    assert outside(text) == outside(plain)


def outside(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith(">")]


@pytest.mark.parametrize(
    ("user", "head"),
    [
        ("{answer} {context}", ""),
        ("Context: {context} {answer}", "Context:\n"),
        ("Read.\n\nThe context:\n{context}\n{answer}", "Read.\n\nThe context:\n"),
    ],
)
@settings(deadline=None)
@given(texts)
def test_every_user_message_begins_with_the_head(user, head, text):
    metric = grounded(user=user)
    assert Messages(metric).user_head == head
    assert Messages(metric).user({"answer": text, "context": text}).startswith(f"{head}>")


def test_the_reminder_is_short_however_many_answers_there_are():
    scale = {step: "" for step in range(1, 51)}
    labels = {f"label number {number}": "" for number in range(60)}
    scored = Messages(scorer("m", scale, inputs=["a"], user="{a}")).user({"a": "x"})
    labelled = Messages(classifier("m", labels, inputs=["a"], user="{a}")).user({"a": "x"})
    assert scored == '> x\n\nAnswer with one of {"output": 1} to {"output": 50}.'
    assert labelled == "> x\n\nAnswer with one of the JSON documents above."


@pytest.mark.parametrize(
    "changes",
    [
        {"definition": "Decide."},
        {"user": "{context} {answer}"},
        {"direction": "minimize"},
        {"labels": dict(reversed(PARTS["labels"].items()))},
        {"labels": {**PARTS["labels"], "unsupported": "Some of it is not."}},
        {"labels": {**PARTS["labels"], "unsupported": Label("unsupported", "Not all.", 0)}},
        {"inputs": {"answer": "output", "text": "context"}, "user": "{text} {answer}"},
        {"steps": []},
        {"notes": []},
        {"examples": []},
    ],
    ids=str,
)
def test_the_digest_changes_with_all_that_a_verdict_depends_on(changes):
    changes = {"examples": [], **changes}
    base = grounded() if changes == {"examples": []} else grounded(examples=[])
    assert grounded(**changes).digest != base.digest


def test_the_digest_does_not_change_with_what_the_model_never_sees():
    other = grounded(description="Other", name="other", inputs={"answer": "a", "context": "c"})
    assert other.digest == grounded().digest
    assert len(other.digest) == 64


def test_a_metric_survives_pickling_with_its_digest():
    metric = grounded()
    assert metric.digest
    assert pickle.loads(pickle.dumps(metric)) == metric


def test_a_mapping_goes_over_the_default_columns():
    metric = grounded()
    assert metric.columns() == {"answer": "output", "context": "context"}
    assert metric.columns({"answer": "reply"}) == {"answer": "reply", "context": "context"}


def test_a_mapping_for_an_unknown_input_names_the_near_one():
    with pytest.raises(ConfigError) as caught:
        grounded().columns({"anwser": "reply"})
    assert caught.value.hint == "did you mean 'answer'?"


def test_the_values_of_a_row_are_texts():
    metric = grounded()
    values, missing = metric.values({"output": 4, "context": ["é"], "x": 1}, metric.columns())
    assert values == {"answer": "4", "context": '["é"]'}
    assert missing == ()


@pytest.mark.parametrize("cell", [{}, {"output": None}, {"output": " \n"}, {"output": math.nan}])
def test_missing_and_blank_inputs_are_reported_by_name(cell):
    metric = grounded()
    values, missing = metric.values({**cell, "context": "c"}, metric.columns())
    assert values == {"context": "c"}
    assert missing == ("answer",)


def test_a_value_that_has_no_text_is_named_with_its_column():
    metric = grounded()
    with pytest.raises(DataError) as caught:
        metric.values({"output": b"x", "context": "c"}, metric.columns())
    assert caught.value.field == "output"


SUBJECT = Metric(
    name="subject",
    inputs={"text": "text"},
    answers=Open("choices", (Label("other", "None fits."),)),
    user="Choose from {choices} for: {text}",
    examples=(Example({"choices": "red\nother", "text": "Sky."}, "Not red.", "other"),),
)


def test_labels_of_a_run_take_the_place_of_those_of_a_row():
    metric = SUBJECT.with_labels({"pets": "Animals.", "{text}": ""})
    assert metric.answers.values == ("pets", "{text}", "other")
    assert metric.examples == ()
    assert (
        Messages(metric)
        .user({"text": "t"})
        .startswith("Choose from\n(those listed above)\nfor:\n> t\n")
    )
    assert '- "pets": Animals.\n- "{text}"\n- "other": None fits.' in Messages(metric).system


def test_labels_of_a_run_make_another_metric():
    assert SUBJECT.with_labels(["a"]).digest != SUBJECT.with_labels(["b"]).digest
    assert SUBJECT.with_labels(["a"]).digest != SUBJECT.digest


def test_only_a_metric_that_leaves_its_labels_open_takes_some():
    with pytest.raises(MetricError, match="answers of its own") as caught:
        grounded().with_labels(["a", "b"])
    assert caught.value.hint
    with pytest.raises(MetricError, match="differ only in case"):
        SUBJECT.with_labels(["a", "A"])


def test_an_optional_input_may_be_missing_and_an_empty_one_is():
    metric = dataclasses.replace(grounded(), optional=("context",), examples=())
    values, missing = metric.values({"output": "a", "context": " "}, metric.columns())
    assert (values, missing) == ({"answer": "a"}, ())
    assert metric.digest != dataclasses.replace(metric, optional=()).digest


def test_an_input_may_be_read_by_a_path():
    metric = grounded()
    row = {"output": {"value": "a"}, "documents": [{"text": "c"}]}
    columns = metric.columns({"answer": "output.value", "context": "documents[0].text"})
    assert metric.values(row, columns) == ({"answer": "a", "context": "c"}, ())
