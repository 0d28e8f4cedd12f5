"""How far a run agrees with people: its verdicts joined to human labels by id, and the figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.errors import ConfigError, DataError
from localjudge.human_labels import HumanLabels, read_human
from localjudge.judged import Judged, read_judged
from localjudge.outputs import replacing
from localjudge.records import Status, Verdict
from localjudge.statistics.bootstrap import Floats
from localjudge.statistics.figures import Figure
from localjudge.statistics.judging import judge_figures
from localjudge.statistics.raters import Ceiling, Ratings, ceiling, consensus, tally
from localjudge.toml_file import closest

Figures = Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Matches:
    """How the ids of both sides line up.

    Attributes:
        matched: Ids that both have.
        judge_only: Ids of the run that no one labelled.
        human_only: Ids with a label that are not in the run.
        repeated: Ids that stand on several lines of the human file: several raters.
        unlabelled: Lines of the human file without a label.
        tied: Matched ids that are left out, since the raters are split evenly.
    """

    matched: int
    judge_only: int
    human_only: int
    repeated: int
    unlabelled: int
    tied: int


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
        resamples: How many resamples are drawn.
        seed: Where the random numbers begin: the same seed gives the same intervals.

    Raises:
        ConfigError: the options do not fit the run, or a metric answers with text.
        DataError: the human file cannot be read, has labels that are no answers, or its ids do not
            line up with those of the run.
        RunError: the folder holds no finished run.
    """
    if not 0 <= min_matched <= 1:
        raise ConfigError("must be from 0 to 1", field="min_matched")
    if resamples < 100:
        raise ConfigError("fewer than 100 resamples give no interval", field="resamples")
    run = read_judged(folder)
    agreements, used = [], set()
    for metric, column in _columns(label_column, tuple(run)).items():
        labelled = read_human(
            human,
            label_column=column,
            id_column=id_column,
            rater_column=rater_column,
            cluster_column=cluster_column,
        )
        used |= {each.label for ratings in labelled.ratings.values() for each in ratings}
        _check_matched(labelled, run[metric], min_matched)
        agreements.append(
            _agreement(run[metric], labelled, map_labels or {}, resamples=resamples, seed=seed)
        )
    for label in map_labels or {}:
        if label not in used:
            hint = closest(label, sorted(used))
            raise ConfigError(f"no label {label!r} in the file", field="map_labels", hint=hint)
    return agreements


def write_agreements(agreements: Sequence[Agreement], path: str | PathLike[str]) -> None:
    """Write agreements as one JSON object: metric to what `Agreement.to_dict` returns.

    Raises:
        RunError: the file cannot be written. Nothing is left under its name.
    """
    whole = {agreement.metric: agreement.to_dict() for agreement in agreements}
    text = json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=2)
    with replacing(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def _columns(given: str | Mapping[str, str], metrics: Sequence[str]) -> dict[str, str]:
    if not isinstance(given, str):
        for metric in given:
            if metric not in metrics:
                raise ConfigError(
                    f"the run has no metric {metric!r}",
                    field="label_column",
                    hint=closest(metric, metrics),
                )
        return dict(given)
    if len(metrics) > 1:
        raise ConfigError(
            f"the run has several metrics, and {given!r} cannot hold the labels of all",
            field="label_column",
            hint=f"give METRIC=COLUMN for one or more of: {', '.join(metrics)}",
        )
    return dict.fromkeys(metrics, given)


def _check_matched(human: HumanLabels, run: Judged, least: float) -> None:
    matched = sum(row_id in run.verdicts for row_id in human.ratings)
    if human.ratings and matched and matched >= least * len(human.ratings):
        return
    examples = [repr(next(iter(side), None)) for side in (human.ratings, run.verdicts)]
    raise DataError(
        f"of {len(human.ratings)} labelled ids, {matched} are in the run",
        path=human.path,
        hint=f"the first id in this file is {examples[0]}, in the run {examples[1]}: name this "
        "file's column of ids (--id-column), judge with --id-column, or lower --min-matched",
    )


def _agreement(
    judged: Judged,
    human: HumanLabels,
    mapping: Mapping[str, str],
    *,
    resamples: int,
    seed: int,
) -> Agreement:
    labels, scale = judged.answers()
    values = np.array([float(label) for label in labels]) if scale else None
    placed = human.placed(labels, mapping)
    ids = [row_id for row_id in placed if row_id in judged.verdicts]
    verdicts = [judged.verdicts[row_id] for row_id in ids]
    judge = np.array([_place(verdict, labels) for verdict in verdicts], dtype=np.int64)
    # By default each row is a cluster of its own.
    names = [human.clusters.get(row_id, row_id) for row_id in ids]
    clusters = np.unique(names, return_inverse=True)[1].astype(np.int64)
    each = [(row, *rating) for row, row_id in enumerate(ids) for rating in placed[row_id]]
    rows, given = (np.array([rating[i] for rating in each], dtype=np.int64) for i in (0, 2))
    ratings = Ratings(
        rows=rows,
        raters=np.array([rater for _, rater, _ in each]),
        given=given,
        judge=judge[rows],
        clusters=clusters[rows],
        labels=labels,
        values=values,
    )
    settled = consensus(tally(rows, given, ratings.shape), values)
    kept = settled >= 0
    if not kept.any():
        raise DataError("the raters are split evenly on every row", path=human.path)
    figures = judge_figures(
        settled[kept],
        judge[kept],
        labels,
        values=values,
        distributions=_distributions(verdicts, labels, kept),
        own_lists=len(judged.lists) > 1,
        clusters=np.unique(clusters[kept], return_inverse=True)[1],
        resamples=resamples,
        seed=seed,
    )
    confusion = np.zeros((len(labels),) * 2, dtype=np.int64)
    answered = kept & (judge >= 0)
    np.add.at(confusion, (settled[answered], judge[answered]), 1)
    statuses = Counter(str(verdicts[row].status) for row in np.flatnonzero(kept))
    return Agreement(
        metric=judged.metric,
        labels=labels,
        scale=scale,
        matches=Matches(
            matched=len(ids),
            judge_only=len(judged.verdicts) - len(ids),
            human_only=len(placed) - len(ids),
            repeated=human.repeated,
            unlabelled=human.unlabelled,
            tied=int((~kept).sum()),
        ),
        statuses=dict(statuses.most_common()),
        figures={name: figure for name, figure in figures.items() if ":" not in name},
        by_label={label: _of_label(figures, label) for label in labels},
        confusion=tuple(tuple(map(int, row)) for row in confusion),
        ceiling=ceiling(ratings, named=human.named, resamples=resamples, seed=seed),
    )


def _place(verdict: Verdict, labels: Sequence[str]) -> int:
    return -1 if verdict.value is None else labels.index(str(verdict.value))


def _of_label(figures: Figures, label: str) -> Figures:
    pairs = ((*name.partition(":"), figure) for name, figure in figures.items())
    return {name: figure for name, _, of, figure in pairs if _ and of == label}


def _distributions(
    verdicts: Sequence[Verdict], labels: Sequence[str], kept: NDArray[np.bool_]
) -> Floats | None:
    """Return the probabilities, with zeros for what a row could not be answered with."""
    chosen = [verdicts[row] for row in np.flatnonzero(kept)]
    if any(v.probabilities is None for v in chosen if v.status is Status.OK):
        return None
    each = [verdict.probabilities or {} for verdict in chosen]
    return np.array([[of_row.get(label, 0.0) for label in labels] for of_row in each])
