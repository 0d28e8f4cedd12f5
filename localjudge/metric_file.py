"""The shape of a metric file: TOML with known keys only, and errors that name the place."""

from __future__ import annotations

import difflib
import re
import reprlib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from localjudge.answers import AnswerSpace, Kind, Label, Labels, Open, Scale, Text
from localjudge.errors import MetricError

Direction = Literal["maximize", "minimize", "neutral"]


def closest(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the known word nearest to `word`, or all of them if none is near."""
    words = list(known)
    near = difflib.get_close_matches(word, words, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(words)}"


def read_metric_file(path: Path) -> MetricFile:
    """Read a metric file and check its shape; what its parts say of each other is `Metric`'s part.

    Raises:
        MetricError: the file cannot be read, is not UTF-8 or not TOML, has an unknown key, lacks
            one, or holds a value of the wrong type.
    """
    try:
        return MetricFile.model_validate(_read_toml(path))
    except ValidationError as error:
        raise _shape_error(error.errors(include_url=False)[0], path) from None


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, table: Any) -> Any:
        # Before all else, so that a misspelt key is reported as such and not as a missing one.
        for key in table if isinstance(table, dict) else ():
            if key not in cls.model_fields:
                raise PydanticCustomError(
                    "unknown_key",
                    "unknown key {key}",
                    {"key": repr(key), "hint": closest(key, cls.model_fields)},
                )
        return table


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
            {"hint": 'write [answers.labels] and below it lines such as "true" = "what it means"'},
        )
    return labels


class LabelTable(_Table):
    """One label's entry; a bare string stands for its meaning."""

    meaning: str = ""
    score: float | None = None


class TextTable(_Table):
    """The limits of a text answer."""

    begins: str = ""
    max_sentences: int
    max_words: int


class InputTable(_Table):
    """One input; a bare string stands for its column."""

    column: str
    optional: bool = False


class PairTable(_Table):
    """What a comparison of two inputs compares."""

    inputs: Annotated[tuple[str, str], Strict(False)]
    labels: Annotated[tuple[str, str], Strict(False)]
    tie: str


class AnswersTable(_Table):
    """The answer space: `labels`, `scale` or `text`; with `choices`, each row brings its labels."""

    labels: (
        Annotated[
            dict[str, Annotated[LabelTable, BeforeValidator(_as_label_table)]],
            BeforeValidator(_is_table),
        ]
        | None
    ) = None
    scale: dict[str, str] | None = None
    text: TextTable | None = None
    choices: str | None = None


class PromptTable(_Table):
    """The parts of the prompt that are written by hand."""

    user: str
    definition: str = ""
    steps: list[str] = []
    notes: list[str] = []
    system: str | None = None


class ExampleTable(_Table):
    """One worked example. The answer space decides what `output` may be."""

    inputs: dict[str, str]
    output: Any
    reasoning: str = ""


class MetricFile(_Table):
    """A whole metric file."""

    name: str
    kind: Kind
    description: str = ""
    direction: Direction = "neutral"
    inputs: dict[str, Annotated[InputTable, BeforeValidator(_as_input_table)]]
    answers: AnswersTable
    prompt: PromptTable
    examples: list[ExampleTable] = []
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
        entries = (answers.labels or {}).items()
        labels = tuple(Label(name, entry.meaning, entry.score) for name, entry in entries)
        if answers.choices is not None:
            return Open(answers.choices, labels)
        if answers.text is not None:
            return Text(answers.text.begins, answers.text.max_sentences, answers.text.max_words)
        if answers.scale is not None:
            return Scale.of({_step(key): text for key, text in answers.scale.items()})
        return Labels(labels)

    def columns(self) -> dict[str, str]:
        """Return input name to default column."""
        return {name: entry.column for name, entry in self.inputs.items()}

    def optional(self) -> tuple[str, ...]:
        """Return the names of the inputs that a row may lack."""
        return tuple(name for name, entry in self.inputs.items() if entry.optional)


def _step(key: str) -> int:
    if not re.fullmatch(r"0|-?[1-9][0-9]{0,3}", key):  # one spelling: `01` is not another `1`
        raise MetricError(
            f"the step {key!r} is not an integer from -9999 to 9999", field="answers.scale"
        )
    return int(key)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise MetricError(
            "this is a folder", path=path, hint="name one metric file (.toml) in it"
        ) from None
    except FileNotFoundError:
        raise MetricError(
            "there is no such file",
            path=path,
            hint="`localjudge metrics` lists the metrics that are shipped",
        ) from None
    except OSError as error:
        raise MetricError(f"cannot be read: {error.strerror}", path=path) from None
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise MetricError(
            "the text is not valid UTF-8",
            path=path,
            line=data[: error.start].count(b"\n") + 1,
            hint="save the file as UTF-8",
        ) from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))  # otherwise "at end of document"
        raise MetricError(
            f"not valid TOML: {error}",
            path=path,
            line=int(place[1]) if place else len(data.splitlines()),
        ) from None


def _shape_error(error: ErrorDetails, path: Path) -> MetricError:
    problem = error["msg"]
    if error["type"] == "missing":
        problem = "this key is missing"
    elif error["type"] not in ("unknown_key", "labels", "label_entry"):
        problem = f"{problem[0].lower()}{problem[1:]}, not {reprlib.repr(error['input'])}"
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
    return MetricError(
        problem,
        path=path,
        field=field.removeprefix(".") or None,
        hint=error.get("ctx", {}).get("hint"),
    )
