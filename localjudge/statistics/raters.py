"""Several raters of one row: what they agree on, and what the others say without one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localjudge.statistics.bootstrap import Floats, Ints, Resampling
from localjudge.statistics.categories import UNDEFINED, Level, alphas, categories, grades
from localjudge.statistics.figures import Figure, estimate, joined


def tally(rows: Ints, labels: Ints, shape: tuple[int, int]) -> Floats:
    """Return how often each label was given to each row.

    Args:
        rows: Place of the row of each rating.
        labels: Place of the label of each rating.
        shape: Number of rows and of labels.
    """
    counts = np.zeros(shape)
    np.add.at(counts, (rows, labels), 1.0)
    return counts


def consensus(counts: Floats, values: Floats | None = None) -> Ints:
    """Return the place of the label on which the raters of each row settle, -1 where there is none.

    Of labels it is the most frequent one; two that are equally frequent leave none. On a scale it
    is the mean grade, rounded half up.

    Args:
        counts: How often each label was given to each row, shape (rows, labels).
        values: The grades, each integer from the lowest up, if the labels are a scale.
    """
    rated = counts.sum(1) > 0
    if values is None:
        most = counts.max(1, keepdims=True, initial=0.0)
        alone = ((counts == most).sum(1) == 1) & rated
        return np.where(alone, counts.argmax(1), -1)
    mean = (counts @ values) / np.maximum(counts.sum(1), 1)
    return np.where(rated, np.floor(mean + 0.5) - values[0], -1).astype(np.int64)


def without_each(
    rows: Ints, labels: Ints, shape: tuple[int, int], values: Floats | None = None
) -> Ints:
    """Return, for each rating, the consensus of the row's other raters, -1 where there is none."""
    others = tally(rows, labels, shape)[rows]
    others[np.arange(len(rows)), labels] -= 1
    return consensus(others, values)


@dataclass(frozen=True, slots=True)
class Ratings:
    """What several raters said of the same rows; one entry for each rating.

    Attributes:
        rows: Place of the row.
        raters: Name of the rater.
        given: Place of the label in `labels`.
        judge: Place of the verdict on the same row; -1 where there is none.
        clusters: Number of the row's cluster, counted from 0, every number in use.
        labels: The labels.
        values: The grades, if the labels are a scale: each integer from the lowest up.
    """

    rows: Ints
    raters: NDArray[np.str_]
    given: Ints
    judge: Ints
    clusters: Ints
    labels: Sequence[str]
    values: Floats | None = None

    def where(self, kept: NDArray[np.bool_]) -> Ratings:
        """Return some of the ratings, with the rows and clusters numbered anew."""
        rows, clusters = (
            np.unique(numbers[kept], return_inverse=True)[1].astype(np.int64)
            for numbers in (self.rows, self.clusters)
        )
        sides = (self.raters[kept], self.given[kept], self.judge[kept])
        return Ratings(rows, *sides, clusters, self.labels, self.values)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of labels."""
        return int(self.rows.max(initial=-1)) + 1, len(self.labels)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """People among themselves, and the judge in the place of one of them.

    One rater at a time is left out. The consensus of the others on a row is compared with what that
    rater said, and with the verdict on the same row.

    Attributes:
        rows: Rows that have a verdict and two raters or more.
        humans: Krippendorff's alpha among the raters, `alpha_among_raters`, and each rater against
            the others.
        judge: The judge against the same others.
        raters: For each named rater, on the rows that others labelled too: `judge` against that
            rater, `others` against that rater, and `judge_against_others`.
    """

    rows: int
    humans: Mapping[str, Figure]
    judge: Mapping[str, Figure]
    raters: Mapping[str, Mapping[str, Mapping[str, Figure]]]


def ceiling(
    ratings: Ratings, *, named: bool = False, resamples: int = 2000, seed: int = 0
) -> Ceiling | None:
    """Return how far raters agree and how far the judge does, or None if no row has several.

    Args:
        ratings: The ratings.
        named: Whether to compare each rater by name.
        resamples: How many resamples are drawn.
        seed: Where the random numbers begin.
    """
    several = tally(ratings.rows, ratings.given, ratings.shape).sum(1)[ratings.rows] > 1
    ratings = ratings.where(several & (ratings.judge >= 0))
    if not len(ratings.rows):
        return None
    counts = tally(ratings.rows, ratings.given, ratings.shape)
    _, first = np.unique(ratings.rows, return_index=True)
    level: Level = "nominal" if ratings.values is None else "ordinal"
    among = estimate(
        alphas(counts, [level], ratings.values),
        Resampling(ratings.clusters[first], resamples, seed),
        UNDEFINED,
    )
    others = without_each(ratings.rows, ratings.given, ratings.shape, ratings.values)
    settled = others >= 0

    def compared(one: Ints, other: Ints, kept: NDArray[np.bool_]) -> dict[str, Figure]:
        return _compared(ratings, one[kept], other[kept], kept, resamples, seed)

    each = {}
    for rater in np.unique(ratings.raters[settled]) if named else ():
        own = settled & (ratings.raters == rater)
        each[str(rater)] = {
            "judge": compared(ratings.given, ratings.judge, own),
            "others": compared(ratings.given, others, own),
            "judge_against_others": compared(others, ratings.judge, own),
        }
    return Ceiling(
        ratings.shape[0],
        {"alpha_among_raters": among[f"alpha_{level}"]} | compared(others, ratings.given, settled),
        compared(others, ratings.judge, settled),
        each,
    )


def _compared(
    ratings: Ratings,
    one: Ints,
    other: Ints,
    kept: NDArray[np.bool_],
    resamples: int,
    seed: int,
) -> dict[str, Figure]:
    """Compare two sides on some of the ratings; those of one row are drawn together."""
    if not len(one):
        return {}
    whole = categories(one, other, ratings.labels)
    names = ["accuracy", "kappa", "alpha_nominal"]
    if ratings.values is not None:
        whole = joined(whole, grades(one, other, ratings.values))
        names = ["accuracy", "kappa", "kappa_quadratic", "alpha_ordinal"]

    def chosen(weights: Floats) -> dict[str, Floats]:
        figures = whole(weights)
        return {name: figures[name] for name in names}

    clusters = ratings.where(kept).clusters
    return estimate(chosen, Resampling(clusters, resamples, seed), UNDEFINED)
