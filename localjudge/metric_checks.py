"""What must hold between the parts of a metric, wherever it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, get_args

from localjudge.answers import AnswerSpace, Labels, Open, Scale, Text, Value, document
from localjudge.errors import MetricError
from localjudge.metric_file import Direction
from localjudge.templates import CHOICES, Template
from localjudge.toml_file import closest

if TYPE_CHECKING:
    from localjudge.metrics import Example, Metric, Pair

_METRIC_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_INPUT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_metric(metric: Metric) -> None:
    """Check that the parts of `metric` are well formed and fit each other.

    Raises:
        MetricError: they do not; the field is named as in a metric file.
    """
    _check_types(metric)
    _check_names(metric)
    _check_user(metric)
    _check_rubric(metric)
    if metric.system is not None:
        _check_system(metric, metric.system)
    if metric.pair is not None:
        _check_pair(metric, metric.pair)
    for name in metric.optional:
        if name not in metric.inputs:
            raise MetricError(f"unknown input {name!r}", field="optional")
    if set(metric.optional) == set(metric.inputs):
        raise MetricError(
            "all inputs are optional, so there may be nothing to judge", field="inputs"
        )
    for index, example in enumerate(metric.examples):
        _check_example(metric, example, f"examples[{index}]")


def check_name(name: str) -> None:
    """Check that `name` can be that of a metric.

    Raises:
        MetricError: it cannot.
    """
    if not isinstance(name, str) or not _METRIC_NAME.fullmatch(name):
        raise MetricError(
            f"{name!r} cannot be the name of a metric",
            field="name",
            hint="use letters, digits, `_`, `.` and `-`, and begin with a letter, digit or `_`",
        )


def _check_types(metric: Metric) -> None:
    if not isinstance(metric.answers, AnswerSpace):
        raise MetricError(
            f"{metric.answers!r} is no answer space",
            field="answers",
            hint="use Labels, Scale, Text or Open",
        )
    texts: dict[str, object] = {
        "description": metric.description,
        "prompt.user": metric.user,
        "prompt.definition": metric.definition,
        "prompt.system": "" if metric.system is None else metric.system,
        **{f"inputs.{name}": column for name, column in metric.inputs.items()},
    }
    for index, example in enumerate(metric.examples):
        if not isinstance(example.inputs, Mapping):
            raise MetricError("this is not a mapping", field=f"examples[{index}].inputs")
        texts[f"examples[{index}].reasoning"] = example.reasoning
        for name, text in example.inputs.items():
            texts[f"examples[{index}].inputs.{name}"] = text
    for field, value in texts.items():
        if not isinstance(value, str):
            raise MetricError(f"{value!r} is of type {type(value).__name__}, not text", field=field)


def _check_names(metric: Metric) -> None:
    check_name(metric.name)
    if metric.direction not in get_args(Direction):
        raise MetricError(
            f"unknown direction {metric.direction!r}",
            field="direction",
            hint=closest(str(metric.direction), get_args(Direction)),
        )
    if not metric.inputs:
        raise MetricError("no input is declared, so there is nothing to judge", field="inputs")
    for name, column in metric.inputs.items():
        if not isinstance(name, str) or not _INPUT_NAME.fullmatch(name):
            raise MetricError(
                f"{name!r} cannot be the name of an input",
                field="inputs",
                hint="use letters, digits and `_`, and begin with a letter or `_`",
            )
        if not column.strip():
            raise MetricError("the column is blank", field=f"inputs.{name}")


def _check_placeholders(used: Iterable[str], known: Iterable[str], field: str) -> None:
    for name in used:
        if name not in known:
            raise MetricError(
                f"the placeholder {{{name}}} is not declared",
                field=field,
                hint=f"{closest(name, known)} (to print it as it is, write {{{{{name}}}}})",
            )


def _check_user(metric: Metric) -> None:
    used = Template.parse(metric.user).names
    listed = (CHOICES,) if isinstance(metric.answers, Open) else ()
    _check_placeholders(used, (*metric.inputs, *listed), "prompt.user")
    for name in listed:
        if name not in used:
            raise MetricError(
                f"{{{name}}} is missing, so the model would not see a row's labels",
                field="prompt.user",
                hint=f"put {{{name}}} on a line of its own, before the inputs",
            )
    for name in metric.inputs:
        if name not in used:
            raise MetricError(
                f"the input {name!r} is declared but not used",
                field="prompt.user",
                hint=f"put {{{name}}} where its text belongs, or do not declare it",
            )


def _check_rubric(metric: Metric) -> None:
    """Make sure that the parts that are the same for all rows do not ask for a row's text."""
    rubric = {
        "prompt.definition": metric.definition,
        **{f"prompt.steps[{index}]": step for index, step in enumerate(metric.steps)},
        **{f"prompt.notes[{index}]": note for index, note in enumerate(metric.notes)},
    }
    for field, text in rubric.items():
        for name in Template.parse(text).names:
            if name in metric.inputs:
                raise MetricError(
                    f"{{{name}}} is filled in `user` alone; here it would stay as it is",
                    field=field,
                    hint=f"call it by a word, such as: the {name}",
                )


def _check_system(metric: Metric, system: str) -> None:
    used = Template.parse(system).names
    _check_placeholders(used, ("answers", "examples"), "prompt.system")
    if "answers" not in used:
        raise MetricError(
            "{answers} is missing, so the model would not know what it may answer",
            field="prompt.system",
            hint="put {answers} on a line of its own",
        )
    if metric.examples and "examples" not in used:
        raise MetricError(
            "there are examples, but no {examples} where they would be shown",
            field="prompt.system",
            hint="put {examples} on a line of its own, or take the examples out",
        )
    for part in ("definition", "steps", "notes"):
        if getattr(metric, part):
            raise MetricError(
                "this is not shown, because `system` is the whole system message",
                field=f"prompt.{part}",
                hint="move the text into `system`, or take `system` out",
            )


def _check_example(metric: Metric, example: Example, field: str) -> None:
    listed = (CHOICES,) if isinstance(metric.answers, Open) else ()
    known = (*metric.inputs, *listed)
    for name in example.inputs:
        if name not in known:
            raise MetricError(
                f"unknown input {name!r}", field=f"{field}.inputs", hint=closest(name, known)
            )
    for name in known:
        if name not in metric.optional and not example.inputs.get(name, "").strip():
            raise MetricError(f"the input {name!r} is missing or blank", field=f"{field}.inputs")
    answers, output = metric.answers, example.output
    if isinstance(answers, Text):
        _check_example_text(answers, output, field)
        return
    if isinstance(answers, Open):
        answers = answers.close(example.inputs[CHOICES].splitlines())
    if any(type(output) is type(value) and output == value for value in answers.values):
        return
    if isinstance(answers, Scale):
        hint = f"write an integer from {answers.low} to {answers.high}, without quotes"
    else:
        hint = closest(str(output), map(str, answers.values))
    raise MetricError(
        f"{output!r} is not one of the metric's answers", field=f"{field}.output", hint=hint
    )


def _check_example_text(answers: Text, output: Value, field: str) -> None:
    try:
        answers.parse(document(output))
    except ValueError as error:
        raise MetricError(str(error), field=f"{field}.output") from None


def _check_pair(metric: Metric, pair: Pair) -> None:
    for name in pair.inputs:
        if name not in metric.inputs:
            raise MetricError(
                f"unknown input {name!r}", field="pair.inputs", hint=closest(name, metric.inputs)
            )
    if not isinstance(metric.answers, Labels):
        raise MetricError("a comparison of two inputs answers with labels", field="pair")
    for label in (*pair.labels, pair.tie):
        if label not in metric.answers.values:
            raise MetricError(
                f"unknown label {label!r}",
                field="pair",
                hint=closest(label, metric.answers.values),
            )
    if len({*pair.labels, pair.tie}) < 3 or pair.inputs[0] == pair.inputs[1]:
        raise MetricError("the two sides and the tie must differ", field="pair")
