import pytest

from localjudge.errors import MetricError
from localjudge.labels import Label
from localjudge.metrics import Example, Metric, classifier, scorer

LABELS = {"yes": "It is.", "no": "It is not."}
SCALE = {1: "bad", 2: "middling", 3: "good"}


def build(**changes) -> Metric:
    parts = {"name": "m", "labels": LABELS, "inputs": {"answer": "output"}, "user": "{answer}"}
    return classifier(**{**parts, **changes})


def example(output, **inputs) -> list[Example]:
    good = Example({"answer": "x"}, "", "yes")
    return [good, Example(inputs or {"answer": "x"}, "", output)]


@pytest.mark.parametrize("name", ["m", "_m", "9", "a.b-c_D"])
def test_plain_names_are_accepted(name):
    assert build(name=name).name == name


@pytest.mark.parametrize(
    ("changes", "field", "problem", "hint"),
    [
        ({"name": ""}, "name", "''", None),
        ({"name": "../x"}, "name", "'../x'", "letters"),
        ({"name": "-x"}, "name", "'-x'", None),
        ({"name": "x\n"}, "name", "'x\\n'", None),
        ({"direction": "maximise"}, "direction", "'maximise'", "'maximize'"),
        ({"inputs": {}}, "inputs", "no input", None),
        ({"inputs": {"a b": "c"}}, "inputs", "'a b'", None),
        ({"inputs": {"answer": " "}}, "inputs.answer", "blank", None),
        ({"inputs": "answer"}, "inputs", "list of texts", None),
        ({"steps": "Read it."}, "prompt.steps", "list of texts", None),
        ({"notes": "Note it."}, "prompt.notes", "list of texts", None),
        ({"user": "{answr}"}, "prompt.user", "{answr}", "'answer'"),
        ({"user": "{answer} {b}"}, "prompt.user", "{b}", "{{b}}"),
        ({"user": "Judge."}, "prompt.user", "'answer' is declared but not used", "{answer}"),
        ({"user": "{{answer}}"}, "prompt.user", "not used", None),
        ({"system": "{answers} {answer}"}, "prompt.system", "{answer}", "'answers'"),
        ({"system": "Judge."}, "prompt.system", "{answers} is missing", None),
        ({"system": "{answers}", "examples": example("no")}, "prompt.system", "examples", None),
        ({"system": "{answers}", "steps": ["a"]}, "prompt.steps", "not shown", "system"),
        ({"system": "{answers}", "definition": "a"}, "prompt.definition", "not shown", None),
        ({"labels": {"a": ""}}, "answers.labels", "1 label", None),
        ({"labels": {True: "", False: ""}}, "answers.labels", "bool", '"True"'),
        ({"labels": {"a": Label("b"), "c": ""}}, "answers.labels.a", "'b'", None),
        ({"examples": example("Yes")}, "examples[1].output", "'Yes'", "'yes'"),
        ({"examples": example(1)}, "examples[1].output", "1 is not", "yes, no"),
        ({"examples": example("no", answr="x")}, "examples[1].inputs", "'answr'", "'answer'"),
        ({"examples": example("no", answer=" ")}, "examples[1].inputs", "blank", None),
        ({"examples": [Example({}, "", "no")]}, "examples[0].inputs", "'answer'", None),
    ],
)
def test_a_wrong_part_is_named_with_its_field(changes, field, problem, hint):
    with pytest.raises(MetricError) as caught:
        build(**changes)
    assert caught.value.field == field
    assert problem in caught.value.problem
    assert hint is None or hint in (caught.value.hint or "")


@pytest.mark.parametrize("output", ["3", 3.0, True, 4, None])
def test_an_example_on_a_scale_answers_with_an_integer_of_it(output):
    examples = [Example({"a": "x"}, "", output)]
    with pytest.raises(MetricError) as caught:
        scorer("m", SCALE, inputs=["a"], user="{a}", examples=examples)
    assert caught.value.field == "examples[0].output"
    assert caught.value.hint == "write an integer from 1 to 3, without quotes"


def test_a_scale_without_one_step_is_refused():
    with pytest.raises(MetricError, match=r"\[2\]"):
        scorer("m", {1: "bad", 3: "good"}, inputs=["a"], user="{a}")
