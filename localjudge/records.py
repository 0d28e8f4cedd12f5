"""What goes in and what comes out: rows and verdicts."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from localjudge.answers import Value
from localjudge.errors import DataError

_NO_TEXT = re.compile("[\0\ud800-\udfff]")


class Status(StrEnum):
    """What became of one row under one metric."""

    OK = "ok"
    MISSING_INPUT = "missing_input"
    INPUT_TOO_LONG = "input_too_long"
    INVALID_OUTPUT = "invalid_output"
    TRUNCATED = "truncated"
    ENGINE_ERROR = "engine_error"


@dataclass(frozen=True, slots=True)
class Row:
    """One input row.

    Attributes:
        id: Its id as text, unique within a run.
        fields: Column name to value, as read; values may be nested.
        line: Where it stood in its file, counted from 1; 0 if it came from memory.
    """

    id: str
    fields: Mapping[str, Any]
    line: int = 0

    @classmethod
    def of(cls, row: Row | Mapping[str, Any], number: int) -> Row:
        """Take a row from Python code, with the values of numpy and pandas as Python's own.

        Args:
            row: A row, or a dict of column to value; its id is its `id`, or its number.
            number: Its number, counted from 1.

        Raises:
            DataError: it is neither, or its id is not text or an integer.
        """
        if isinstance(row, Row):
            given, row_id, line = row.fields, row.id, row.line
        elif isinstance(row, Mapping):
            given, row_id, line = row, _plain(row.get("id", number)), 0
        else:
            raise DataError(
                f"row {number} is of type {type(row).__name__}",
                hint="give each row as a dict of column to value",
            )
        try:
            row_id = as_id(row_id)
        except ValueError as error:
            raise DataError(
                f"row {number}: {error}",
                field="id",
                hint="an id is text or an integer; leave it out to number the rows",
            ) from None
        return cls(row_id, {name: _plain(value) for name, value in given.items()}, line)


def as_id(value: Any) -> str:
    """Return an id as text.

    Raises:
        ValueError: it is none: no text or integer, blank, or with a NUL or half of a surrogate
            pair, which other programs would not give back as they are.
    """
    if value is None:
        raise ValueError("the row has no id")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"an id must be text or an integer, not {type(value).__name__}")
    text = str(value)
    if not text.strip():
        raise ValueError("the id is blank")
    if _NO_TEXT.search(text):
        raise ValueError(f"the id {text!r} holds a NUL or half of a surrogate pair")
    return text


def _plain(value: Any) -> Any:
    """Return a scalar of numpy as Python's own, and NA and NaT of pandas as None."""
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if pandas is not None and (value is pandas.NA or value is pandas.NaT):
        return None
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one row under one metric.

    Only a verdict of status `ok` has a value. In every other status `value`, `label`, `score`,
    `probabilities`, `confidence` and `expected_score` are None and `error` says why.

    Attributes:
        id: The row's id.
        metric: The metric's name.
        status: What became of the row.
        value: The answer: a label, an integer of the scale, or text.
        label: The answer of a classification; None for other kinds.
        score: The number that the answer counts as, if one was declared.
        probabilities: Probability of each allowed answer, by its text; sums to 1. None where no
            distribution was read (text, guided decoding).
        confidence: Probability of `value`.
        answer_mass: Share of the model's own next-token probability that lay on any allowed
            answer, from 0 to 1. A low mass means that the model wanted to say something else.
        expected_score: Mean of the scores under `probabilities`, if every answer has a score.
        explanation: The explanation, if one was asked for.
        direction: `maximize`, `minimize` or `neutral`: which way is better.
        truncated: Whether any written text was cut at its budget.
        prompt_tokens: Tokens in the prompt.
        output_tokens: Tokens that the model wrote.
        error: Why there is no verdict.
        metadata: Further facts, such as the raw text of an invalid answer.
    """

    id: str
    metric: str
    status: Status
    value: Value | None = None
    label: str | None = None
    score: float | None = None
    probabilities: Mapping[str, float] | None = None
    confidence: float | None = None
    answer_mass: float | None = None
    expected_score: float | None = None
    explanation: str | None = None
    direction: str = "neutral"
    truncated: bool = False
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain values, in the order of the attributes."""
        values = {name: getattr(self, name) for name in VERDICT_FIELDS}
        values["status"] = str(self.status)
        values["probabilities"] = None if self.probabilities is None else dict(self.probabilities)
        values["metadata"] = dict(self.metadata)
        return values

    def to_json(self) -> str:
        """Return the verdict as one line of JSON.

        Raises:
            ValueError: a number is not finite; such a verdict must not exist.
        """
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Verdict:
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is not what `to_json` writes: a field is missing, unknown or of another
                type.
        """
        try:
            values = json.loads(line, parse_constant=_refuse_constant)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        if not isinstance(values, dict):
            raise ValueError(f"a verdict is a JSON object, not {type(values).__name__}")
        odd = values.keys() ^ _TYPES.keys()
        if odd:
            raise ValueError(f"fields that are missing or unknown: {', '.join(sorted(odd))}")
        for name, value in values.items():
            if type(value) not in _TYPES[name]:
                raise ValueError(f"{name} is of type {type(value).__name__}")
        for value in (values["probabilities"] or {}).values():
            if type(value) not in (float, int):
                raise ValueError(f"a probability is of type {type(value).__name__}")
        values["status"] = Status(values["status"])
        return cls(**values)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


VERDICT_FIELDS = tuple(item.name for item in dataclasses.fields(Verdict))

_NOTHING = type(None)
_NUMBER = (float, int, _NOTHING)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "id": (str,),
    "metric": (str,),
    "status": (str,),
    "value": (str, int, _NOTHING),
    "label": (str, _NOTHING),
    "score": _NUMBER,
    "probabilities": (dict, _NOTHING),
    "confidence": _NUMBER,
    "answer_mass": _NUMBER,
    "expected_score": _NUMBER,
    "explanation": (str, _NOTHING),
    "direction": (str,),
    "truncated": (bool,),
    "prompt_tokens": (int,),
    "output_tokens": (int,),
    "error": (str, _NOTHING),
    "metadata": (dict,),
}
