"""One judge against one human label a row: all figures at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localjudge.statistics import categories, correlation, probabilities
from localjudge.statistics.bootstrap import Floats, Ints, Resampling
from localjudge.statistics.figures import Figure, estimate, joined, on_rows

_EXPECTED = "expected_"
_UNDEFINED = {
    **categories.UNDEFINED,
    **correlation.UNDEFINED,
    **{_EXPECTED + name: reason for name, reason in correlation.UNDEFINED.items()},
    **probabilities.UNDEFINED,
}
_LABEL_FIGURES = ("accuracy", "balanced_accuracy", "macro_f1", "kappa", "alpha_nominal", "ac1")
_GRADE_FIGURES = ("kappa_linear", "kappa_quadratic", "alpha_ordinal", "alpha_interval")
_BY_LABEL = ("precision", "recall", "f1")


def judge_figures(
    human: Ints,
    judge: Ints,
    labels: Sequence[str],
    *,
    values: Floats | None = None,
    distributions: Floats | None = None,
    own_lists: bool = False,
    clusters: Ints | None = None,
    resamples: int = 2000,
    seed: int = 0,
    more: int = 0,
) -> dict[str, Figure]:
    """Return every figure of a judge's agreement with people, each with its 95% interval.

    Of all rows: `coverage` and `accuracy_failures_wrong`. Of the rows that have a verdict: those of
    `categories`, and of `probabilities` if there are distributions; for a scale also those of
    `grades` and `correlation`, the latter once more for the expected grade, with `expected_` in
    front. A figure of one label is called `figure:label`.

    Args:
        human: Place in `labels` of each row's human label.
        judge: Place of each row's verdict, -1 where there is none.
        labels: All labels that could be given.
        values: The grades, ascending, if the labels are a scale.
        distributions: Probability of each label, shape (rows, labels); rows without a verdict may
            hold anything. None if the judge gives none.
        own_lists: Whether each row had labels of its own to choose from. Probabilities of one label
            then do not rank the rows.
        clusters: The cluster of each row, counted from 0, every number in use; by default each row
            is one.
        resamples: How many resamples are drawn.
        seed: Where the random numbers begin.
        more: How many rows more each resample has, so that the intervals are as wide as is to be
            expected with so many labels more. Of clusters, as many more as have these rows.
    """
    judged = judge >= 0
    parts = [categories.coverage(judged.astype(float), (human == judge).astype(float))]
    missing: dict[str, str] = {}
    if not judged.any():
        missing = dict.fromkeys(_names(labels, values), "no row has a verdict")
    else:
        given, answered = human[judged], judge[judged]
        of_judged = [categories.categories(given, answered, labels)]
        if values is not None:
            of_judged.append(categories.grades(given, answered, values))
            of_judged.append(correlation.correlation(values[given], values[answered]))
        if distributions is None:
            reason = "the run has no probabilities: it was not decoded directly"
            missing = dict.fromkeys(_probability_names(values), reason)
        else:
            read = distributions[judged]
            if values is not None:
                expected = read @ values
                of_judged.append(correlation.correlation(values[given], expected, _EXPECTED))
            of_judged.append(probabilities.scoring(given, answered, read))
            if own_lists:
                reason = "each row has labels of its own"
                missing = dict.fromkeys(probabilities.RANKING, reason)
            else:
                of_judged.append(probabilities.ranking(given, read, labels))
        parts.append(on_rows(judged, joined(*of_judged)))
    units = np.arange(len(human)) if clusters is None else clusters
    further = round(more * (int(units.max(initial=-1)) + 1) / max(1, len(units)))
    figures = estimate(joined(*parts), Resampling(units, resamples, seed, further), _UNDEFINED)
    return figures | {name: Figure(None, reason=reason) for name, reason in missing.items()}


def _names(labels: Sequence[str], values: Floats | None) -> list[str]:
    names = [*_LABEL_FIGURES, *(f"{name}:{label}" for name in _BY_LABEL for label in labels)]
    if values is not None:
        names += [*_GRADE_FIGURES, *correlation.UNDEFINED]
    return names + _probability_names(values)


def _probability_names(values: Floats | None) -> list[str]:
    expected = [] if values is None else [_EXPECTED + name for name in correlation.UNDEFINED]
    return [*expected, *probabilities.UNDEFINED]
