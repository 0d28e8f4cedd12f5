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
        ({"definition": "Is {answer} good?"}, "prompt.definition", "{answer}", "the answer"),
        ({"steps": ["Read.", "See {answer}."]}, "prompt.steps[1]", "in `user` alone", None),
        ({"notes": ["{answer}"]}, "prompt.notes[0]", "in `user` alone", None),
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
    with pytest.raises(MetricError, match=r"has no meaning for 2$"):
        scorer("m", {1: "bad", 3: "good"}, inputs=["a"], user="{a}")


def test_a_list_of_labels_without_meanings_is_enough():
    assert build(labels=["yes", "no"]).answers.values == ("yes", "no")


def test_of_a_wide_gap_in_a_scale_only_the_first_steps_are_named():
    with pytest.raises(MetricError, match=r"for 2, 3, 4, 5, 6 and 9992 more$"):
        scorer("m", {1: "bad", 9999: "good"}, inputs=["a"], user="{a}")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": 5}, "name"),
        ({"name": None}, "name"),
        ({"labels": 5}, "answers.labels"),
        ({"labels": "ab"}, "answers.labels"),
        ({"labels": {"a": None, "b": ""}}, "answers.labels.a"),
        ({"labels": {"a": Label("a", 3), "b": ""}}, "answers.labels.a"),
        ({"labels": {"a": Label("a", "", "1"), "b": ""}}, "answers.labels.a"),
        ({"labels": {"a": Label("a", "", 10**400), "b": ""}}, "answers.labels.a"),
        ({"labels": {"a": Label("a", "", True), "b": ""}}, "answers.labels.a"),
        ({"inputs": 5}, "inputs"),
        ({"inputs": [["answer"]]}, "inputs[0]"),
        ({"inputs": {"answer": 5}}, "inputs.answer"),
        ({"inputs": {5: "answer"}}, "inputs"),
        ({"user": 5}, "prompt.user"),
        ({"user": None}, "prompt.user"),
        ({"definition": None}, "prompt.definition"),
        ({"description": 5}, "description"),
        ({"system": 5}, "prompt.system"),
        ({"steps": 5}, "prompt.steps"),
        ({"steps": ["a", 5]}, "prompt.steps[1]"),
        ({"notes": [None]}, "prompt.notes[0]"),
        ({"direction": None}, "direction"),
        ({"direction": ["maximize"]}, "direction"),
        ({"examples": 5}, "examples"),
        ({"examples": ["a"]}, "examples"),
        ({"examples": [Example("x", "", "yes")]}, "examples[0].inputs"),
        ({"examples": [Example({"answer": 5}, "", "yes")]}, "examples[0].inputs.answer"),
        ({"examples": [Example({"answer": "x"}, None, "yes")]}, "examples[0].reasoning"),
        ({"examples": [Example({"answer": "x"}, "", ["yes"])]}, "examples[0].output"),
    ],
)
def test_a_part_of_another_type_is_named_with_its_field(changes, field):
    with pytest.raises(MetricError) as caught:
        build(**changes)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "scale",
    [
        5,
        [1, 2],
        "12",
        {"1": "a", "2": "b"},
        {1: "a", "2": "b"},
        {1: "a", 2.0: "b"},
        {1: "a", 2: None},
        {0: "a", 10**12: "b"},
        {float("nan"): "a", 1: "b"},
        {None: "a", 1: "b"},
    ],
)
def test_a_scale_of_other_types_is_refused(scale):
    with pytest.raises(MetricError) as caught:
        scorer("m", scale, inputs=["a"], user="{a}")
    assert caught.value.field.startswith("answers.scale")
