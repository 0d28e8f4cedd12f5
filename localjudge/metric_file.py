"""The shape of a metric file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict
from pydantic_core import PydanticCustomError

from localjudge.answers import AnswerSpace, Kind, Labels, Open, Scale, Text
from localjudge.errors import MetricError
from localjudge.labels import Label
from localjudge.toml_file import TomlTable, read_toml

Direction = Literal["maximize", "minimize", "neutral"]


def read_metric_file(path: Path) -> MetricFile:
    """Read a metric file and check its shape; what its parts say of each other is `Metric`'s part.

    Raises:
        MetricError: the file cannot be read, is not UTF-8 or not TOML, has an unknown key, lacks
            one, or holds a value of the wrong type.
    """
    return read_toml(MetricFile, path)


def _as_label_table(entry: Any) -> Any:
    if isinstance(entry, str):
        return {"meaning": entry}
    if not isinstance(entry, dict):
        raise PydanticCustomError(
            "label_entry",
            "a label's entry is its meaning, in quotes, or a table with `meaning` and `score`",
        )
    return entry


def _as_input_table(entry: Any) -> Any:
    return {"column": entry} if isinstance(entry, str) else entry


def _is_table(labels: Any) -> Any:
    if not isinstance(labels, dict):
        raise PydanticCustomError(
            "labels",
            "labels are a table, label = meaning",
            {"hint": 'write a table of lines such as "true" = "what it means"'},
        )
    return labels


class LabelTable(TomlTable):
    """One label's entry; a bare string stands for its meaning."""

    meaning: str = ""
    score: float | None = None


LabelTables = Annotated[
    dict[str, Annotated[LabelTable, BeforeValidator(_as_label_table)]],
    BeforeValidator(_is_table),
]


class TextTable(TomlTable):
    """The limits of a text answer."""

    begins: str = ""
    max_sentences: int
    max_words: int


class InputTable(TomlTable):
    """One input; a bare string stands for its column."""

    column: str
    optional: bool = False


class PairTable(TomlTable):
    """What a comparison of two inputs compares."""

    inputs: Annotated[tuple[str, str], Strict(False)]
    labels: Annotated[tuple[str, str], Strict(False)]
    tie: str


class AnswersTable(TomlTable):
    """The answer space: `labels`, `scale` or `text`; with `choices`, each row brings its labels."""

    labels: LabelTables | None = None
    scale: dict[str, str] | None = None
    text: TextTable | None = None
    choices: str | None = None


class PromptTable(TomlTable):
    """The parts of the prompt that are written by hand."""

    user: str
    definition: str = ""
    steps: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    system: str | None = None


class ExampleTable(TomlTable):
    """One worked example. The answer space decides what `output` may be."""

    inputs: dict[str, str]
    output: Any
    reasoning: str = ""


class MetricFile(TomlTable):
    """A whole metric file."""

    name: str
    kind: Kind
    description: str = ""
    direction: Direction = "neutral"
    inputs: dict[str, Annotated[InputTable, BeforeValidator(_as_input_table)]]
    answers: AnswersTable
    prompt: PromptTable
    examples: list[ExampleTable] = Field(default_factory=list)
    pair: PairTable | None = None

    def answer_space(self) -> AnswerSpace:
        """Return what the metric may answer.

        Raises:
            MetricError: `answers` does not fit `kind`, or is no valid answer space.
        """
        answers = self.answers
        wanted = {"classify": "labels", "score": "scale", "text": "text"}[self.kind]
        given = answers.model_fields_set - ({"choices"} if self.kind == "classify" else set())
        if given != {wanted} and not (answers.choices and not given):
            found = ", ".join(sorted(given - {wanted})) or "nothing"
            raise MetricError(
                f"a metric of kind {self.kind!r} declares answers.{wanted} alone, not {found}",
                field="answers",
            )
        labels = labels_of(answers.labels or {})
        if answers.choices is not None:
            return Open(answers.choices, labels)
        if answers.text is not None:
            return Text(answers.text.begins, answers.text.max_sentences, answers.text.max_words)
        if answers.scale is not None:
            return scale_of(answers.scale)
        return Labels(labels)

    def columns(self) -> dict[str, str]:
        """Return input name to default column."""
        return {name: entry.column for name, entry in self.inputs.items()}

    def optional(self) -> tuple[str, ...]:
        """Return the names of the inputs that a row may lack."""
        return tuple(name for name, entry in self.inputs.items() if entry.optional)


def labels_of(table: Mapping[str, LabelTable]) -> tuple[Label, ...]:
    """Return the labels of a table, unchecked."""
    return tuple(Label(name, entry.meaning, entry.score) for name, entry in table.items())


def scale_of(table: Mapping[str, str]) -> Scale:
    """Return the scale of a table.

    Raises:
        MetricError: a step is not an integer, or one between the ends is missing.
    """
    return Scale.of({_step(key): meaning for key, meaning in table.items()})


def _step(key: str) -> int:
    if not re.fullmatch(r"0|-?[1-9][0-9]{0,3}", key):  # one spelling: `01` is not another `1`
        raise MetricError(
            f"the step {key!r} is not an integer from -9999 to 9999", field="answers.scale"
        )
    return int(key)
