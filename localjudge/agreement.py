"""How far a run agrees with people: its verdicts joined to human labels by id, and the figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from typing import Any, Literal

import numpy as np

from localjudge.calibration_file import Calibration, digest_of
from localjudge.compared import Compared, Matches, compare
from localjudge.errors import ConfigError
from localjudge.outputs import replacing
from localjudge.runs import open_run
from localjudge.statistics.figures import Figure
from localjudge.statistics.judging import judge_figures
from localjudge.statistics.raters import Ceiling, ceiling

Figures = Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the verdicts of one metric agree with human labels.

    Attributes:
        metric: Name of the metric.
        labels: The metric's answers, in their declared order.
        scale: Whether they are the steps of a scale.
        matches: How the ids line up.
        statuses: Number of compared rows by the status of the verdict.
        figures: The figures, by name. All but `coverage` and `accuracy_failures_wrong` are of the
            rows that have a verdict.
        by_label: For each label its precision, recall, F1, AUROC and average precision.
        confusion: Number of rows by human label (outer) and verdict (inner).
        ceiling: People among themselves; None if no row has several raters.
        expected: Number of further labels to the figures with the intervals to expect then.
        calibration: None if the verdicts are as the judge gave them. Otherwise they are calibrated,
            on labels from `elsewhere`, or by a map that was `fitted_here`, on the very same file.
    """

    metric: str
    labels: tuple[str, ...]
    scale: bool
    matches: Matches
    statuses: Mapping[str, int]
    figures: Figures
    by_label: Mapping[str, Figures]
    confusion: tuple[tuple[int, ...], ...]
    ceiling: Ceiling | None
    expected: Mapping[int, Figures] = field(default_factory=dict)
    calibration: Literal["fitted_here", "elsewhere"] | None = None

    @property
    def rows(self) -> int:
        """How many rows are compared, those without a verdict included."""
        return sum(self.statuses.values())

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values, fit for JSON."""
        return {
            "metric": self.metric,
            "labels": list(self.labels),
            "scale": self.scale,
            "calibration": self.calibration,
            "matches": {name: getattr(self.matches, name) for name in Matches.__slots__},
            "rows": self.rows,
            "statuses": dict(self.statuses),
            "figures": _plain(self.figures),
            "by_label": {label: _plain(figures) for label, figures in self.by_label.items()},
            "confusion": [list(row) for row in self.confusion],
            "ceiling": None
            if self.ceiling is None
            else {
                "rows": self.ceiling.rows,
                "humans": _plain(self.ceiling.humans),
                "judge": _plain(self.ceiling.judge),
                "raters": {
                    rater: {side: _plain(figures) for side, figures in sides.items()}
                    for rater, sides in self.ceiling.raters.items()
                },
            },
            "expected_half_widths": {
                str(more): {name: figure.half_width for name, figure in figures.items()}
                for more, figures in self.expected.items()
            },
        }


def _plain(figures: Figures) -> dict[str, Any]:
    return {name: figure.to_dict() for name, figure in figures.items()}


def agree(
    folder: str | PathLike[str],
    human: str | PathLike[str],
    *,
    label_column: str | Mapping[str, str] = "label",
    id_column: str | None = None,
    rater_column: str | None = None,
    cluster_column: str | None = None,
    map_labels: Mapping[str, str] | None = None,
    min_matched: float = 0.5,
    calibration: str | PathLike[str] | None = None,
    more_labels: Sequence[int] = (),
    resamples: int = 2000,
    seed: int = 0,
) -> list[Agreement]:
    """Compare the verdicts of a finished run with human labels, metric by metric.

    Every figure has a 95% bootstrap interval (BCa, else percentile). Where a figure or an interval
    is not defined, it is None, with the reason.

    Args:
        folder: The run folder.
        human: JSON Lines, CSV, TSV or Parquet file of labels; ids are compared as text.
        label_column: The column that holds the labels; of a run of several metrics, metric to
            column, and metrics that are not named are left out.
        id_column: The column that holds the ids; by default `id`, else the line's number.
        rater_column: The column that says who gave the label.
        cluster_column: The column that says which rows belong together, such as a document. Such
            rows are drawn together, for they say less than as many single ones.
        map_labels: Human label to answer, where the two are called differently.
        min_matched: The least share of labelled ids that must be in the run.
        calibration: A calibration file: the verdicts are calibrated before they are compared.
        more_labels: For so many labels more, say which intervals to expect: those of resamples that
            are larger by as many rows.
        resamples: How many resamples are drawn.
        seed: Where the random numbers begin: the same seed gives the same intervals.

    Raises:
        ConfigError: the options do not fit the run, or a metric answers with text.
        DataError: the human file cannot be read, has labels that are no answers, or its ids do not
            line up with those of the run.
        RunError: the folder holds no finished run.
    """
    if resamples < 100:
        raise ConfigError("fewer than 100 resamples give no interval", field="resamples")
    if any(more < 1 for more in more_labels):
        raise ConfigError("must be positive", field="more_labels")
    known = None if calibration is None else Calibration.load(calibration)
    where: Literal["fitted_here", "elsewhere"] | None = None
    if known is not None:
        known.check(open_run(folder))
        where = "fitted_here" if known.human == digest_of(human) else "elsewhere"
    compared = compare(
        folder,
        human,
        label_column=label_column,
        id_column=id_column,
        rater_column=rater_column,
        cluster_column=cluster_column,
        map_labels=map_labels,
        min_matched=min_matched,
        change=None if known is None else known.calibrated,
    )
    agreements = [
        _agreement(each, more_labels=more_labels, resamples=resamples, seed=seed)
        for each in compared
    ]
    return [replace(agreement, calibration=where) for agreement in agreements]


def write_agreements(agreements: Sequence[Agreement], path: str | PathLike[str]) -> None:
    """Write agreements as one JSON object: metric to what `Agreement.to_dict` returns.

    Raises:
        RunError: the file cannot be written. Nothing is left under its name.
    """
    whole = {agreement.metric: agreement.to_dict() for agreement in agreements}
    text = json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=2)
    with replacing(path) as beside:
        beside.write_text(text + "\n", encoding="utf-8")


def _agreement(
    compared: Compared, *, more_labels: Sequence[int], resamples: int, seed: int
) -> Agreement:
    labels, human, judge = compared.labels, compared.human, compared.judge
    measure = partial(
        judge_figures,
        human,
        judge,
        labels,
        values=compared.values,
        distributions=compared.distributions,
        own_lists=compared.own_lists,
        clusters=compared.clusters,
        resamples=resamples,
        seed=seed,
    )
    figures = measure()
    confusion = np.zeros((len(labels),) * 2, dtype=np.int64)
    np.add.at(confusion, (human[judge >= 0], judge[judge >= 0]), 1)
    statuses = Counter(str(verdict.status) for verdict in compared.verdicts)
    return Agreement(
        metric=compared.metric,
        labels=labels,
        scale=compared.scale,
        matches=compared.matches,
        statuses=dict(statuses.most_common()),
        figures=_of_all(figures),
        by_label={label: _of_label(figures, label) for label in labels},
        confusion=tuple(tuple(map(int, row)) for row in confusion),
        ceiling=ceiling(compared.ratings, named=compared.named, resamples=resamples, seed=seed),
        expected={more: _of_all(measure(more=more)) for more in more_labels},
    )


def _of_all(figures: Figures) -> Figures:
    return {name: figure for name, figure in figures.items() if ":" not in name}


def _of_label(figures: Figures, label: str) -> Figures:
    pairs = ((*name.partition(":"), figure) for name, figure in figures.items())
    return {name: figure for name, _, of, figure in pairs if _ and of == label}
