"""Answer spaces: what a metric may answer, and the exact JSON in which it does."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from localjudge.errors import MetricError

Kind = Literal["classify", "score", "text"]
Value = str | int


def document(value: Value) -> str:
    """Return the whole JSON answer for `value`, in the one spelling that localjudge uses."""
    return json.dumps({"output": value}, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Label:
    """One label of a classification, what it means, and the number it counts as, if any."""

    name: str
    meaning: str = ""
    score: float | None = None


class _Closed:
    """What `Labels` and `Scale` share: a finite list of answers, each one JSON document."""

    @property
    def values(self) -> tuple[Value, ...]:
        """The answers, in the order in which they are shown."""
        raise NotImplementedError

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The number that each answer counts as, in the order of `values`."""
        raise NotImplementedError

    @property
    def documents(self) -> tuple[str, ...]:
        """The JSON document of each answer, in the order of `values`."""
        return tuple(document(value) for value in self.values)

    @property
    def pattern(self) -> str:
        """A regular expression that matches exactly `documents`, for constrained decoding."""
        return "(" + "|".join(re.escape(text) for text in self.documents) + ")"

    @property
    def answer_format(self) -> str:
        """The answer format as the prompt states it: every allowed document."""
        return "\n".join(self.documents)

    def parse(self, text: str) -> Value:
        """Read one answer strictly: a JSON document that equals an allowed one.

        Raises:
            ValueError: `text` is anything else. There is no rescue of words found inside it.
        """
        try:
            read = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a JSON document: {error}") from None
        if isinstance(read, dict) and read.keys() == {"output"}:
            for value in self.values:
                # The type counts too: in Python True == 1 and 4.0 == 4, in an answer they are not.
                if type(read["output"]) is type(value) and read["output"] == value:
                    return value
        raise ValueError("the JSON document is not one of the allowed answers")

    def score(self, value: Value) -> float | None:
        """Return the number that `value` counts as, or None where none was declared."""
        return self.scores[self.values.index(value)]

    def expected_score(self, probabilities: Sequence[float]) -> float | None:
        """Return the mean score under `probabilities`, or None unless every answer has a score."""
        scores = [score for score in self.scores if score is not None]
        if len(scores) < len(self.values):
            return None
        return math.fsum(p * s for p, s in zip(probabilities, scores, strict=True))


@dataclass(frozen=True, slots=True)
class Labels(_Closed):
    """A closed list of labels.

    Raises:
        MetricError: fewer than two labels; a label that is not text, is blank, has spaces at its
            ends, holds control characters, or cannot be told from another by a reader.
    """

    labels: tuple[Label, ...]
    kind: ClassVar[Kind] = "classify"

    def __post_init__(self) -> None:
        if len(self.labels) < 2:
            raise MetricError(
                f"{len(self.labels)} label(s) declared, which leaves nothing to decide",
                field="answers.labels",
                hint="declare at least two labels",
            )
        seen: dict[str, str] = {}
        for label in self.labels:
            _check_label(label, seen)

    @classmethod
    def of(cls, labels: Mapping[str, str | Label] | Sequence[str]) -> Labels:
        """Build from `{label: meaning}`, `{label: Label}` or a plain list of labels."""
        if not isinstance(labels, Mapping):
            return cls(tuple(Label(name) for name in labels))
        return cls(
            tuple(
                entry if isinstance(entry, Label) else Label(name, entry)
                for name, entry in labels.items()
            )
        )

    @property
    def values(self) -> tuple[str, ...]:
        """The labels, in the order in which they are shown."""
        return tuple(label.name for label in self.labels)

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The number that each label counts as."""
        return tuple(label.score for label in self.labels)

    @property
    def meanings(self) -> tuple[str, ...]:
        """What each label means."""
        return tuple(label.meaning for label in self.labels)


@dataclass(frozen=True, slots=True)
class Scale(_Closed):
    """Every integer from `low` to `high`, with the meaning of those that have one.

    Raises:
        MetricError: `low` is not below `high`, or a meaning stands outside the scale.
    """

    low: int = 1
    high: int = 5
    meaning: tuple[tuple[int, str], ...] = ()
    kind: ClassVar[Kind] = "score"

    def __post_init__(self) -> None:
        for bound in (self.low, self.high):
            if isinstance(bound, bool) or not isinstance(bound, int):
                raise MetricError(f"{bound!r} is not an integer", field="answers.scale")
        if self.low >= self.high:
            raise MetricError(
                f"a scale from {self.low} to {self.high} leaves nothing to decide",
                field="answers.scale",
                hint="the low end must be below the high end",
            )
        for step, _ in self.meaning:
            if isinstance(step, bool) or not isinstance(step, int) or step not in self.values:
                raise MetricError(
                    f"{step!r} is not on the scale from {self.low} to {self.high}",
                    field="answers.scale",
                )

    @classmethod
    def of(cls, meanings: Mapping[int, str]) -> Scale:
        """Build from `{1: meaning, ...}`; the ends are the smallest and the largest key.

        Raises:
            MetricError: the mapping is empty, or a step between the ends is missing.
        """
        if not meanings:
            raise MetricError("the scale is empty", field="answers.scale")
        scale = cls(min(meanings), max(meanings), tuple(sorted(meanings.items())))
        missing = [value for value in scale.values if value not in meanings]
        if missing:
            raise MetricError(
                f"the scale from {scale.low} to {scale.high} has no meaning for {missing}",
                field="answers.scale",
            )
        return scale

    @property
    def values(self) -> tuple[int, ...]:
        """The steps, from low to high."""
        return tuple(range(self.low, self.high + 1))

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The steps as numbers."""
        return tuple(float(value) for value in self.values)

    @property
    def meanings(self) -> tuple[str, ...]:
        """What each step means; empty where nothing was declared."""
        given = dict(self.meaning)
        return tuple(given.get(value, "") for value in self.values)


Closed = Labels | Scale


def _check_label(label: Label, seen: dict[str, str]) -> None:
    name = label.name
    field = f"answers.labels.{name}"
    if not isinstance(name, str):
        raise MetricError(
            f"the label {name!r} is of type {type(name).__name__}, not text",
            field="answers.labels",
            hint=f"put it in quotes: {json.dumps(str(name))}",
        )
    if not name.strip():
        raise MetricError(f"the label {name!r} is blank", field="answers.labels")
    if name != name.strip():
        raise MetricError(f"the label {name!r} has spaces at its ends", field=field)
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in name):
        raise MetricError(
            f"the label {name!r} holds a control character, line break or lone surrogate",
            field="answers.labels",
            hint="labels are single lines of plain text",
        )
    folded = unicodedata.normalize("NFKC", name).casefold()
    if folded in seen:
        other = seen[folded]
        problem = f"the label {name!r} is declared twice"
        if other != name:
            problem = f"the labels {other!r} and {name!r} differ only in case or Unicode form"
        raise MetricError(problem, field=field)
    seen[folded] = name
    if label.score is not None and not math.isfinite(label.score):
        raise MetricError(f"the score {label.score} is not a finite number", field=field)
