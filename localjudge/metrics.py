"""Metrics: what is asked about a row, what may be answered, and how that reads as a prompt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from localjudge.answers import AnswerSpace, Kind, Labels, Open, Scale, Text, Value
from localjudge.errors import ConfigError, DataError, MetricError
from localjudge.labels import Label
from localjudge.messages import LISTED, Messages
from localjudge.metric_checks import check_metric
from localjudge.metric_file import Direction, read_metric_file
from localjudge.paths import lookup
from localjudge.templates import CHOICES, Template, as_text, quote
from localjudge.toml_file import closest

__all__ = ["Example", "Metric", "Pair", "as_text", "classifier", "load_metric", "quote", "scorer"]


@dataclass(frozen=True)
class Example:
    """A worked example: the text of every input, why, and the answer that follows."""

    inputs: Mapping[str, str]
    reasoning: str
    output: Value


@dataclass(frozen=True)
class Pair:
    """Two inputs that are compared, so that the metric is asked in both orders.

    Attributes:
        inputs: The two inputs.
        labels: The answer for the first and that for the second.
        tie: The answer where the two orders disagree.
    """

    inputs: tuple[str, str]
    labels: tuple[str, str]
    tie: str


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric, as `load_metric`, `classifier` and `scorer` build it.

    Attributes:
        name: Its name: letters, digits, `_`, `.` and `-`.
        inputs: Input name to the column that fills it by default.
        answers: What may be answered.
        user: Template of the user message; `{name}` stands for the text of an input.
        direction: `maximize`, `minimize` or `neutral`: which way is better.
        description: One line for people; the model does not see it.
        system: The whole system message, with `{answers}` and, if there are examples,
            `{examples}` where the generated parts go; in place of definition, steps and notes.
        definition: What is to be decided.
        steps: How to go about it.
        notes: How border cases are decided.
        examples: Worked examples.
        path: The file that it was read from.
        optional: Inputs that a row may lack.
        pair: What is compared, if the metric compares two inputs.

    Raises:
        MetricError: a part is wrong or contradicts another; fields are named as in a metric file.
    """

    name: str
    inputs: Mapping[str, str]
    answers: AnswerSpace
    user: str
    direction: Direction = "neutral"
    description: str = ""
    system: str | None = None
    definition: str = ""
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    path: Path | None = None
    optional: tuple[str, ...] = ()
    pair: Pair | None = None

    def __post_init__(self) -> None:
        check_metric(self)

    @property
    def kind(self) -> Kind:
        """The kind of answer: `classify`, `score` or `text`."""
        return self.answers.kind

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of all in the metric that a verdict can depend on."""
        messages = [Messages(self, explain) for explain in (False, True)]
        parts = [
            [message.system for message in messages],
            [message.user_shape for message in messages],
            [*self.answers.documents],
            [None if score is None else float(score) for score in self.answers.scores],
            self.answers.column if isinstance(self.answers, Open) else None,
            repr(self.answers) if isinstance(self.answers, Text) else None,
            self.direction,
            sorted(self.optional),
            None if self.pair is None else [*self.pair.inputs, *self.pair.labels, self.pair.tie],
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def with_labels(self, labels: Mapping[str, str | Label] | Sequence[str]) -> Metric:
        """Return the metric with the labels of a run, in place of a list in every row.

        Its examples, which answer with labels of their own, are left out.

        Raises:
            MetricError: the metric has labels of its own, or these cannot be told apart.
        """
        if not isinstance(self.answers, Open):
            raise MetricError(
                f"the metric {self.name} has answers of its own and takes no labels",
                field="labels",
                hint="to classify by your own labels, give --text too, or write a metric file",
            )
        user = Template.parse(self.user).for_blocks().fixed({CHOICES: LISTED})
        return replace(self, answers=self.answers.close(labels), user=user, examples=())

    def columns(self, mapping: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the column that fills each input: the user's `mapping`, else the default.

        Where each row brings its own labels, `choices` is the column of the lists.

        Raises:
            ConfigError: `mapping` names an input that the metric does not have.
        """
        given = mapping or {}
        columns = dict(self.inputs)
        if isinstance(self.answers, Open):
            columns[CHOICES] = self.answers.column
        for name in given:
            if name not in columns:
                raise ConfigError(
                    f"the metric {self.name} has no input {name!r}", hint=closest(name, columns)
                )
        return {**columns, **given}

    def values(
        self, fields: Mapping[str, Any], columns: Mapping[str, str]
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the text of each input of one row, and the names of the inputs that are missing.

        Args:
            fields: The row, column name to value.
            columns: Input name to column name or path, as `columns` returns it.

        Raises:
            DataError: a value of a type that cannot be shown as text.
        """
        texts: dict[str, str] = {}
        missing: list[str] = []
        for name in self.inputs:
            column = columns[name]
            try:
                text = as_text(lookup(fields, column))
            except DataError as error:
                raise DataError(error.problem, field=column, hint=error.hint) from None
            if text is not None:
                texts[name] = text
            elif name not in self.optional:
                missing.append(name)
        return texts, tuple(missing)


def load_metric(path: str | PathLike[str]) -> Metric:
    """Read a metric from a TOML file.

    Raises:
        MetricError: the file cannot be read or is no valid metric; names the file and the field.
    """
    path = Path(path)
    file = read_metric_file(path)
    try:
        return Metric(
            name=file.name,
            inputs=file.columns(),
            answers=file.answer_space(),
            user=file.prompt.user,
            direction=file.direction,
            description=file.description,
            system=file.prompt.system,
            definition=file.prompt.definition,
            steps=tuple(file.prompt.steps),
            notes=tuple(file.prompt.notes),
            examples=tuple(Example(e.inputs, e.reasoning, e.output) for e in file.examples),
            path=path,
            optional=file.optional(),
            pair=None
            if file.pair is None
            else Pair(file.pair.inputs, file.pair.labels, file.pair.tie),
        )
    except MetricError as error:
        raise MetricError(error.problem, path=path, field=error.field, hint=error.hint) from None


def classifier(
    name: str,
    labels: Mapping[str, str | Label],
    *,
    inputs: Mapping[str, str] | Sequence[str],
    user: str,
    definition: str = "",
    description: str = "",
    direction: Direction = "neutral",
    steps: Sequence[str] = (),
    notes: Sequence[str] = (),
    examples: Sequence[Example] = (),
    system: str | None = None,
) -> Metric:
    """Build a metric that answers with one of `labels`.

    Args:
        name: Its name.
        labels: Label to its meaning, or to a `Label` with meaning and score.
        inputs: Input name to column, or just the names if the columns are called the same.
        user: Template of the user message. For this and the rest see `Metric`.

    Raises:
        MetricError: what is wrong in a metric file is wrong here too.
    """
    for label, entry in labels.items() if isinstance(labels, Mapping) else ():
        if isinstance(entry, Label) and entry.name != label:
            raise MetricError(
                f"the entry of {label!r} is a Label named {entry.name!r}",
                field=f"answers.labels.{label}",
            )
    return Metric(
        name=name,
        inputs=_columns(inputs),
        answers=Labels.of(labels),
        user=user,
        direction=direction,
        description=description,
        system=system,
        definition=definition,
        steps=_texts(steps, "prompt.steps"),
        notes=_texts(notes, "prompt.notes"),
        examples=_examples(examples),
    )


def scorer(
    name: str,
    scale: Mapping[int, str],
    *,
    inputs: Mapping[str, str] | Sequence[str],
    user: str,
    definition: str = "",
    description: str = "",
    direction: Direction = "neutral",
    steps: Sequence[str] = (),
    notes: Sequence[str] = (),
    examples: Sequence[Example] = (),
    system: str | None = None,
) -> Metric:
    """Build a metric that answers with an integer; `scale` gives the meaning of every step.

    The other arguments, and the errors, are those of `classifier`.
    """
    return Metric(
        name=name,
        inputs=_columns(inputs),
        answers=Scale.of(scale),
        user=user,
        direction=direction,
        description=description,
        system=system,
        definition=definition,
        steps=_texts(steps, "prompt.steps"),
        notes=_texts(notes, "prompt.notes"),
        examples=_examples(examples),
    )


def _columns(inputs: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    return {name: name for name in _texts(inputs, "inputs")}


def _texts(texts: Sequence[str], field: str) -> tuple[str, ...]:
    # A text is a sequence too, but of single characters.
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise MetricError(
            f"this is of type {type(texts).__name__} where a list of texts belongs", field=field
        )
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise MetricError(f"{text!r} is not text", field=f"{field}[{index}]")
    return tuple(texts)


def _examples(examples: Sequence[Example]) -> tuple[Example, ...]:
    listed = isinstance(examples, Sequence) and not isinstance(examples, str)
    if not listed or not all(isinstance(example, Example) for example in examples):
        raise MetricError("examples are a list of Example", field="examples")
    return tuple(examples)
