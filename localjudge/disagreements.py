"""Rows beside what people say of them, and those on which a judge differs from people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from localjudge.human_labels import HumanLabels
from localjudge.judged import Judged
from localjudge.records import Verdict
from localjudge.statistics.raters import consensus, tally


@dataclass(frozen=True, slots=True)
class Beside:
    """One row with a human label.

    Attributes:
        verdict: The verdict on it, which may have failed.
        human: The label on which people settle, as text.
        given: How many raters gave each label.
        apart: How far verdict and label are apart: in steps of a scale; otherwise 0 or 1; None
            where the row has no verdict.
    """

    verdict: Verdict
    human: str
    given: Mapping[str, int]
    apart: int | None


def beside_people(
    judged: Judged, human: HumanLabels, mapping: Mapping[str, str] | None = None
) -> list[Beside]:
    """Return the rows of a run that people settle on, in the order of the human file.

    Args:
        judged: The verdicts of one metric.
        human: The labels.
        mapping: Human label to answer, where the two are called differently.

    Raises:
        ConfigError: the metric answers with text, or its answers are not known.
        DataError: a human label is none of the answers.
    """
    labels, scale = judged.answers()
    placed = human.placed(labels, mapping or {})
    ids = [row_id for row_id in placed if row_id in judged.verdicts]
    each = [(row, place) for row, row_id in enumerate(ids) for _, place in placed[row_id]]
    rows, places = np.array(each, dtype=np.int64).reshape(-1, 2).T
    counts = tally(rows, places, (len(ids), len(labels)))
    grades = np.array([float(label) for label in labels]) if scale else None
    found = []
    for row_id, of_row, place in zip(ids, counts, consensus(counts, grades), strict=True):
        if place < 0:
            continue
        verdict = judged.verdicts[row_id]
        given = {labels[at]: int(of_row[at]) for at in np.flatnonzero(of_row)}
        apart = None
        if verdict.value is not None:
            steps = abs(labels.index(str(verdict.value)) - int(place))
            apart = steps if scale else min(steps, 1)
        found.append(Beside(verdict, labels[place], given, apart))
    return found


def disagreements(rows: Iterable[Beside]) -> list[Beside]:
    """Return the rows on which judge and people differ, the plainest first.

    On a scale those come first that are furthest apart; otherwise, and among these, those of which
    the judge was surest. Rows without a confidence come in the order that they have.
    """
    differing = [row for row in rows if row.apart]
    return sorted(differing, key=lambda row: (-(row.apart or 0), -(row.verdict.confidence or 0.0)))


@dataclass(frozen=True, slots=True)
class Bin:
    """Rows of about the same confidence.

    Attributes:
        low: The least confidence of the bin.
        high: The end of the bin.
        rows: How many rows are in it.
        confidence: Their mean confidence; None if there are none.
        accuracy: The share of them that judge and people call the same; None if there are none.
        interval: 95% interval of the accuracy: Wilson 1927, of rows taken as independent.
    """

    low: float
    high: float
    rows: int
    confidence: float | None
    accuracy: float | None
    interval: tuple[float, float] | None


def by_confidence(rows: Iterable[Beside], bins: int = 10) -> list[Bin]:
    """Return the rows that have a confidence in bins of equal width."""
    sure: list[list[float]] = [[] for _ in range(bins)]
    right: Counter[int] = Counter()
    for row in rows:
        if row.apart is None or row.verdict.confidence is None:
            continue
        place = min(int(row.verdict.confidence * bins), bins - 1)
        sure[place].append(row.verdict.confidence)
        right[place] += row.apart == 0
    return [
        _bin(place / bins, (place + 1) / bins, each, right[place])
        for place, each in enumerate(sure)
    ]


def _bin(low: float, high: float, confidences: Sequence[float], right: int) -> Bin:
    rows = len(confidences)
    if not rows:
        return Bin(low, high, 0, None, None, None)
    return Bin(low, high, rows, sum(confidences) / rows, right / rows, wilson(right, rows))


def wilson(right: int, rows: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the interval of a share, from 0 to 1.

    Source: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22
    (1927), 209-212.
    """
    share, spread = right / rows, z * z / rows
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * (share * (1 - share) / rows + spread / (4 * rows)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)
