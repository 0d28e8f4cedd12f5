"""Agreement on categories: accuracy, precision and recall, F1, kappa, alpha, AC1.

Every figure is computed from counts of the categories, none from pairs of rows. Sources: Cohen 1960
(kappa) and 1968 (weighted kappa); Gwet, "Computing inter-rater reliability and its variance in the
presence of high agreement", BJMSP 61 (2008), 29-48 (AC1); Krippendorff, "Computing Krippendorff's
alpha-reliability" (2011).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from localjudge.statistics.figures import Floats, Ints, Statistic, mean_of_defined, quotient

Level = Literal["nominal", "ordinal", "interval"]

_ONE_CLASS = "one class only: both sides always give the same label"
UNDEFINED: Mapping[str, str] = {
    "coverage": "no rows",
    "accuracy": "no rows",
    "accuracy_failures_wrong": "no rows",
    "balanced_accuracy": "no rows",
    "macro_f1": "no rows",
    "kappa": _ONE_CLASS,
    "kappa_linear": _ONE_CLASS,
    "kappa_quadratic": _ONE_CLASS,
    "alpha_nominal": _ONE_CLASS,
    "alpha_ordinal": _ONE_CLASS,
    "alpha_interval": _ONE_CLASS,
    "ac1": "it takes two labels or more",
    "precision": "the judge never gives this label",
    "recall": "people never give this label",
    "f1": "neither side gives this label",
}


def coverage(judged: Floats, right: Floats) -> Statistic:
    """Return the statistic of what failed.

    Figures: `coverage`, the share of rows that have a verdict, and `accuracy_failures_wrong`, the
    accuracy over all rows, where one without a verdict counts as wrong.

    Args:
        judged: 1 where a row has a verdict, else 0; shape (rows,).
        right: 1 where the verdict is the human label, else 0; shape (rows,).
    """

    def statistic(weights: Floats) -> dict[str, Floats]:
        total = weights.sum(1)
        return {
            "coverage": quotient(weights @ judged, total),
            "accuracy_failures_wrong": quotient(weights @ right, total),
        }

    return statistic


def categories(human: Ints, judge: Ints, labels: Sequence[str]) -> Statistic:
    """Return the statistic of two sides' labels, which have no order.

    Figures: `accuracy`; `balanced_accuracy`, the mean recall of the labels that people give;
    `macro_f1`, the mean F1 of the labels that either side gives; `kappa` (Cohen's, unweighted);
    `alpha_nominal` (Krippendorff's); `ac1` (Gwet's, over all of `labels`); and `precision:label`,
    `recall:label` and `f1:label` of each label.

    Args:
        human: Place in `labels` of each row's human label.
        judge: Place in `labels` of each row's verdict.
        labels: All labels that could be given, at least two.
    """
    humans, judges = (_one_hot(side, len(labels)) for side in (human, judge))
    both = humans * judges

    def statistic(weights: Floats) -> dict[str, Floats]:
        given, predicted, right = weights @ humans, weights @ judges, weights @ both
        total, agreed = weights.sum(1), right.sum(1)
        recall, precision = quotient(right, given), quotient(right, predicted)
        f1 = quotient(2 * right, given + predicted)
        observed = quotient(agreed, total)
        by_chance = (given * predicted).sum(1)
        ratings = given + predicted
        pairs = 2 * total * (2 * total - 1)
        differing = pairs - (ratings * (ratings - 1)).sum(1)
        share = quotient(ratings, 2 * total[:, None])
        spread = (share * (1 - share)).sum(1)
        gwet = quotient(spread, np.array(len(labels) - 1.0))
        figures = {
            "accuracy": observed,
            "balanced_accuracy": mean_of_defined(recall),
            "macro_f1": mean_of_defined(f1),
            "kappa": quotient(agreed * total - by_chance, total**2 - by_chance),
            "alpha_nominal": 1 - quotient((1 - observed) * pairs, differing),
            "ac1": quotient(observed - gwet, 1 - gwet),
        }
        for place, label in enumerate(labels):
            figures[f"precision:{label}"] = precision[:, place]
            figures[f"recall:{label}"] = recall[:, place]
            figures[f"f1:{label}"] = f1[:, place]
        return figures

    return statistic


def grades(human: Ints, judge: Ints, values: Floats) -> Statistic:
    """Return the statistic of two sides' grades on a scale.

    Figures: `kappa_linear` and `kappa_quadratic` (Cohen's, weighted by the distance of the grades
    and by its square), `alpha_ordinal` and `alpha_interval` (Krippendorff's).

    Args:
        human: Place in `values` of each row's human grade.
        judge: Place in `values` of each row's grade by the judge.
        values: The grades, ascending.
    """
    humans, judges = (_one_hot(side, len(values)) for side in (human, judge))
    distance = np.abs(values[:, None] - values)
    apart = distance[human, judge]
    alpha = alphas(humans + judges, ("ordinal", "interval"), values)

    def statistic(weights: Floats) -> dict[str, Floats]:
        given, predicted, total = weights @ humans, weights @ judges, weights.sum(1)
        figures = {}
        for name, power in (("kappa_linear", 1), ("kappa_quadratic", 2)):
            by_chance = ((given @ distance**power) * predicted).sum(1)
            figures[name] = 1 - quotient((weights @ apart**power) * total, by_chance)
        return figures | alpha(weights)

    return statistic


def alphas(counts: Floats, levels: Sequence[Level], values: Floats | None = None) -> Statistic:
    """Return the statistic of Krippendorff's alpha among any number of raters.

    Figures: `alpha_nominal`, `alpha_ordinal` or `alpha_interval`, as `levels` say.

    Args:
        counts: How often each label was given to each row, shape (rows, labels). Rows with fewer
            than two ratings do not count.
        levels: How far labels are apart: differ or not; by the ratings that lie between them; or
            by their numbers.
        values: The number of each label, for `interval`.
    """
    used = counts.sum(0) > 0  # labels that nobody gives change nothing
    counts = counts[:, used]
    raters = counts.sum(1)
    paired = quotient(np.ones(len(counts)), raters - 1) * (raters > 1)
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(counts.shape[1])
    flat = (pairs * np.nan_to_num(paired)[:, None, None]).reshape(len(counts), -1)

    def statistic(weights: Floats) -> dict[str, Floats]:
        coincidences = (weights @ flat).reshape(len(weights), *pairs.shape[1:])
        totals = coincidences.sum(2)
        total = totals.sum(1)
        figures = {}
        for level in levels:
            apart = _apart(level, totals, None if values is None else values[used])
            observed = (coincidences * apart).sum((1, 2))
            expected = (totals[:, :, None] * totals[:, None, :] * apart).sum((1, 2))
            figures[f"alpha_{level}"] = 1 - quotient((total - 1) * observed, expected)
        return figures

    return statistic


def _apart(level: Level, totals: Floats, values: Floats | None) -> Floats:
    """Return the squared distance of each two labels, shape (samples, labels, labels)."""
    if level == "nominal":
        differ: Floats = 1 - np.eye(totals.shape[1])[None]
        return differ
    if level == "ordinal":
        place = totals.cumsum(1) - totals / 2
    else:
        if values is None:
            raise ValueError("the interval level needs the labels' numbers")
        place = np.broadcast_to(values, totals.shape)
    squares: Floats = (place[:, :, None] - place[:, None, :]) ** 2
    return squares


def _one_hot(places: Ints, number: int) -> Floats:
    one_hot: Floats = (places[:, None] == np.arange(number)).astype(float)
    return one_hot
