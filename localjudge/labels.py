"""Labels, and what a list of them must be so that a reader can tell them apart."""

from __future__ import annotations

import json
import math
import re
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


# Unicode's default-ignorable code points: nothing is seen of them.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def folded(name: str) -> str:
    """Return the form that two labels share if a reader would take them for the same.

    It has one Unicode form, no case and no invisible characters. Letters of different alphabets
    stay apart, also where they look alike.
    """
    seen = unicodedata.normalize("NFKC", _INVISIBLE.sub("", name))
    return unicodedata.normalize("NFKC", seen.casefold())


def check_labels(labels: Iterable[Label]) -> None:
    """Check each label, and that no two of them can be taken for one another.

    Raises:
        MetricError: a label is not text, is blank, has spaces at its ends, holds control
            characters, cannot be told from another, or has a meaning that is not text or a score
            that is not a finite number.
    """
    seen: dict[str, str] = {}
    for label in labels:
        name, field = label.name, f"answers.labels.{label.name}"
        _check_name(name, field)
        other = seen.get(folded(name))
        if other is not None:
            problem = f"the label {name!r} is declared twice"
            if other != name:
                problem = (
                    f"the labels {other!r} and {name!r} differ only in case, in Unicode form, or "
                    "in characters that are not seen"
                )
            raise MetricError(problem, field=field)
        seen[folded(name)] = name
        if not isinstance(label.meaning, str):
            raise MetricError(f"the meaning {label.meaning!r} is not text", field=field)
        if label.score is not None and not _is_finite(label.score):
            raise MetricError(f"the score {label.score!r} is not a finite number", field=field)


def _check_name(name: str, field: str) -> None:
    if not isinstance(name, str):
        raise MetricError(
            f"the label {name!r} is of type {type(name).__name__}, not text",
            field="answers.labels",
            hint=f"put it in quotes: {json.dumps(str(name))}",
        )
    if not _INVISIBLE.sub("", name).strip():
        raise MetricError(f"the label {name!r} is blank", field="answers.labels")
    if name != name.strip():
        raise MetricError(f"the label {name!r} has spaces at its ends", field=field)
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in name):
        raise MetricError(
            f"the label {name!r} holds a control character, line break or lone surrogate",
            field="answers.labels",
            hint="labels are single lines of plain text",
        )


def _is_finite(score: object) -> bool:
    if isinstance(score, bool) or not isinstance(score, int | float):
        return False
    try:
        return math.isfinite(score)
    except OverflowError:  # an integer that no float can hold
        return False
