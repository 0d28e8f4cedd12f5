"""Verdicts of a run beside human labels: the two sides joined by id, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np

from localjudge.errors import ConfigError, DataError
from localjudge.human_labels import HumanLabels, read_human
from localjudge.judged import Judged, read_judged
from localjudge.records import Status, Verdict
from localjudge.statistics.bootstrap import Floats, Ints
from localjudge.statistics.raters import Ratings, consensus, tally
from localjudge.toml_file import closest


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
class Compared:
    """The rows of one metric that have a human label, in the order of the human file.

    Attributes:
        metric: Name of the metric.
        labels: The metric's answers, in their declared order.
        scale: Whether they are the steps of a scale.
        own_lists: Whether rows had lists of labels of their own.
        matches: How the ids line up.
        verdicts: The verdict on each row, failed ones included.
        human: Place in `labels` of each row's human label: that on which its raters settle.
        judge: Place in `labels` of each verdict, -1 where it failed.
        distributions: Probability of each label, shape (rows, labels), zeros where there is none;
            None if the run has no probabilities.
        clusters: The cluster of each row, counted from 0, every number in use.
        ratings: Every single rating, of rows too on which the raters do not settle.
        named: Whether raters have names.
        unlabelled: The verdicts on rows that no one labelled.
    """

    metric: str
    labels: tuple[str, ...]
    scale: bool
    own_lists: bool
    matches: Matches
    verdicts: tuple[Verdict, ...]
    human: Ints
    judge: Ints
    distributions: Floats | None
    clusters: Ints
    ratings: Ratings
    named: bool
    unlabelled: tuple[Verdict, ...]

    @property
    def values(self) -> Floats | None:
        """The grades, ascending, if the answers are a scale."""
        return _grades(self.labels) if self.scale else None


def compare(
    folder: str | PathLike[str],
    human: str | PathLike[str],
    *,
    label_column: str | Mapping[str, str] = "label",
    id_column: str | None = None,
    rater_column: str | None = None,
    cluster_column: str | None = None,
    map_labels: Mapping[str, str] | None = None,
    min_matched: float = 0.5,
    change: Callable[[str, Sequence[Verdict]], Sequence[Verdict]] | None = None,
) -> list[Compared]:
    """Join the verdicts of a finished run with human labels by id, metric by metric.

    Args:
        folder: The run folder.
        human: JSON Lines, CSV, TSV or Parquet file of labels; ids are compared as text.
        label_column: The column that holds the labels; of a run of several metrics, metric to
            column, and metrics that are not named are left out.
        id_column: The column that holds the ids; by default `id`, else the line's number.
        rater_column: The column that says who gave the label.
        cluster_column: The column that says which rows belong together, such as a document.
        map_labels: Human label to answer, where the two are called differently.
        min_matched: The least share of labelled ids that must be in the run.
        change: What is compared in place of the verdicts of a metric, such as calibrated ones.

    Raises:
        ConfigError: the options do not fit the run, or a metric answers with text.
        DataError: the human file cannot be read, has labels that are no answers, or its ids do not
            line up with those of the run.
        RunError: the folder holds no finished run.
    """
    if not 0 <= min_matched <= 1:
        raise ConfigError("must be from 0 to 1", field="min_matched")
    run = read_judged(folder)
    found, used = [], set()
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
        if change is not None:
            verdicts = run[metric].verdicts
            changed = change(metric, list(verdicts.values()))
            run[metric].verdicts = dict(zip(verdicts, changed, strict=True))
        found.append(_compared(run[metric], labelled, map_labels or {}))
    for label in map_labels or {}:
        if label not in used:
            hint = closest(label, sorted(used))
            raise ConfigError(f"no label {label!r} in the file", field="map_labels", hint=hint)
    return found


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
    if human.numbered and list(run.verdicts) != [str(n + 1) for n in range(len(run.verdicts))]:
        raise DataError(
            "the file has no ids, and the rows of the run have some",
            path=human.path,
            hint="name this file's column of ids (--id-column)",
        )
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


def _compared(judged: Judged, human: HumanLabels, mapping: Mapping[str, str]) -> Compared:
    labels, scale = judged.answers()
    values = _grades(labels) if scale else None
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
    chosen = [verdicts[row] for row in np.flatnonzero(kept)]
    return Compared(
        metric=judged.metric,
        labels=labels,
        scale=scale,
        own_lists=len(judged.lists) > 1,
        matches=Matches(
            matched=len(ids),
            judge_only=len(judged.verdicts) - len(ids),
            human_only=len(placed) - len(ids),
            repeated=human.repeated,
            unlabelled=human.unlabelled,
            tied=int((~kept).sum()),
        ),
        verdicts=tuple(chosen),
        human=settled[kept],
        judge=judge[kept],
        distributions=distributions(chosen, labels),
        clusters=np.unique(clusters[kept], return_inverse=True)[1].astype(np.int64),
        ratings=ratings,
        named=human.named,
        unlabelled=tuple(v for row_id, v in judged.verdicts.items() if row_id not in placed),
    )


def _grades(labels: Sequence[str]) -> Floats:
    return np.array([float(label) for label in labels])


def _place(verdict: Verdict, labels: Sequence[str]) -> int:
    return -1 if verdict.value is None else labels.index(str(verdict.value))


def distributions(verdicts: Sequence[Verdict], labels: Sequence[str]) -> Floats | None:
    """Return the probability of each label, shape (verdicts, labels).

    It is 0 for what a row could not be answered with, and for rows without a verdict.

    Returns:
        None if a verdict has no probabilities: it was not decoded directly.
    """
    if any(v.probabilities is None for v in verdicts if v.status is Status.OK):
        return None
    each = [verdict.probabilities or {} for verdict in verdicts]
    return np.array([[of_row.get(label, 0.0) for label in labels] for of_row in each])
