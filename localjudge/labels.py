"""Labels, and what a list of them must be so that a reader can tell them apart."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from localjudge.errors import MetricError


@dataclass(frozen=True, slots=True)
class Label:
    """One label of a classification, what it means, and the number it counts as, if any."""

    name: str
    meaning: str = ""
    score: float | None = None


def folded(name: str) -> str:
    """Return the form that two labels share if a reader would take them for the same."""
    return unicodedata.normalize("NFKC", name).casefold()


def check_labels(labels: Iterable[Label]) -> None:
    """Check each label, and that no two of them can be taken for one another.

    Raises:
        MetricError: a label is not text, is blank, has spaces at its ends, holds control
            characters, cannot be told from another, or has a score that is not finite.
    """
    seen: dict[str, str] = {}
    for label in labels:
        name, field = label.name, f"answers.labels.{label.name}"
        _check_name(name, field)
        other = seen.get(folded(name))
        if other is not None:
            problem = f"the label {name!r} is declared twice"
            if other != name:
                problem = f"the labels {other!r} and {name!r} differ only in case or Unicode form"
            raise MetricError(problem, field=field)
        seen[folded(name)] = name
        if label.score is not None and not math.isfinite(label.score):
            raise MetricError(f"the score {label.score} is not a finite number", field=field)


def _check_name(name: str, field: str) -> None:
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
