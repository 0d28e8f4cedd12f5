"""The share of each label in a whole run, corrected by the rows of it that people labelled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

import numpy as np

from localjudge.compared import Compared, Matches, compare, distributions
from localjudge.errors import ConfigError
from localjudge.human_labels import read_human
from localjudge.judged import read_judged
from localjudge.outputs import replacing
from localjudge.records import Verdict
from localjudge.statistics.bootstrap import Floats, Ints
from localjudge.statistics.figures import Figure
from localjudge.statistics.rates import Sides, rate_figures
from localjudge.statistics.sampling import block_p, difference_p

ESTIMATES = ("judge", "labelled", "rogan_gladen", "ppi")
_SUSPECT = 0.01
_FAILED = 0.01

Figures = Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Sampling:
    """Whether the labelled rows look like a random sample of the run.

    Attributes:
        labels: How often random samples differ from the other rows in the judge's labels as much as
            these do; None where it cannot be told.
        probabilities: The same of the judge's probabilities; None also if it gives none.
        block: How often random samples stand as close together in the run.
    """

    labels: float | None
    probabilities: float | None
    block: float


@dataclass(frozen=True, slots=True)
class Rates:
    """The share of each label in all rows of a run that have a verdict of one metric.

    Attributes:
        metric: Name of the metric.
        labels: The metric's answers, in their declared order.
        scale: Whether they are the steps of a scale.
        matches: How the ids line up.
        statuses: Number of the run's rows by the status of the verdict.
        labelled: How many rows have a human label and a verdict.
        unlabelled: How many rows have a verdict only.
        figures: The estimates, by name: `judge:label`, `labelled:label`, `rogan_gladen:label` and
            `ppi:label`; of a scale also `judge_mean`, `labelled_mean` and `ppi_mean`.
        sampling: Whether the labelled rows look like a random sample.
        warnings: What stands against the estimates, in words.
        expected: Number of further labels to the figures with the intervals to expect then.
    """

    metric: str
    labels: tuple[str, ...]
    scale: bool
    matches: Matches
    statuses: Mapping[str, int]
    labelled: int
    unlabelled: int
    figures: Figures
    sampling: Sampling
    warnings: tuple[str, ...]
    expected: Mapping[int, Figures]

    @property
    def coverage(self) -> float:
        """The share of the run's rows that have a verdict; the estimates are of these."""
        return self.statuses.get("ok", 0) / sum(self.statuses.values())

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values, fit for JSON."""
        means = {name: self.figures[f"{name}_mean"] for name in ESTIMATES if self.has_mean(name)}
        return {
            "metric": self.metric,
            "labels": list(self.labels),
            "scale": self.scale,
            "matches": {name: getattr(self.matches, name) for name in Matches.__slots__},
            "statuses": dict(self.statuses),
            "coverage": self.coverage,
            "labelled": self.labelled,
            "unlabelled": self.unlabelled,
            "shares": {
                label: {name: self.figures[f"{name}:{label}"].to_dict() for name in ESTIMATES}
                for label in self.labels
            },
            "mean": {name: figure.to_dict() for name, figure in means.items()} or None,
            "sampling": asdict(self.sampling),
            "warnings": list(self.warnings),
            "expected_half_widths": {
                str(more): {name: figure.half_width for name, figure in figures.items()}
                for more, figures in self.expected.items()
            },
        }

    def has_mean(self, estimate: str) -> bool:
        """Say whether there is a mean grade by this estimate."""
        return f"{estimate}_mean" in self.figures


def rates(
    folder: str | PathLike[str],
    human: str | PathLike[str],
    *,
    label_column: str | Mapping[str, str] = "label",
    id_column: str | None = None,
    rater_column: str | None = None,
    cluster_column: str | None = None,
    map_labels: Mapping[str, str] | None = None,
    min_matched: float = 0.5,
    more_labels: Sequence[int] = (),
    seed: int = 0,
) -> list[Rates]:
    """Estimate the share of each label in a finished run, metric by metric, with 95% intervals.

    The labelled rows should be a random sample of the run. What speaks against it is in `warnings`.

    Args:
        folder: The run folder.
        human: JSON Lines, CSV, TSV or Parquet file of labels; ids are compared as text.
        label_column: The column that holds the labels; of a run of several metrics, metric to
            column, and metrics that are not named are left out.
        id_column: The column that holds the ids; by default `id`, else the line's number.
        rater_column: The column that says who gave the label.
        cluster_column: The column that says which rows belong together, such as a document. It
            widens the intervals by the design effect. Lines without a label give their rows'
            clusters too; rows that are not in the file are taken as single ones.
        map_labels: Human label to answer, where the two are called differently.
        min_matched: The least share of labelled ids that must be in the run.
        more_labels: For so many labels more, say which intervals to expect.
        seed: Where the random numbers of the tests on the sample begin.

    Raises:
        ConfigError: the options do not fit the run, or a metric answers with text.
        DataError: the human file cannot be read, has labels that are no answers, or its ids do not
            line up with those of the run.
        RunError: the folder holds no finished run.
    """
    found = compare(
        folder,
        human,
        label_column=label_column,
        id_column=id_column,
        rater_column=rater_column,
        cluster_column=cluster_column,
        map_labels=map_labels,
        min_matched=min_matched,
    )
    clusters: Mapping[str, str] | None = None
    if cluster_column is not None:
        column = (
            label_column if isinstance(label_column, str) else next(iter(label_column.values()))
        )
        clusters = read_human(
            human, label_column=column, id_column=id_column, cluster_column=cluster_column
        ).clusters
    judged = read_judged(folder)
    return [
        _rates(each, list(judged[each.metric].verdicts), clusters, more_labels, seed)
        for each in found
    ]


def write_rates(found: Sequence[Rates], path: str | PathLike[str]) -> None:
    """Write rates as one JSON object: metric to what `Rates.to_dict` returns.

    Raises:
        RunError: the file cannot be written. Nothing is left under its name.
    """
    whole = {each.metric: each.to_dict() for each in found}
    text = json.dumps(whole, ensure_ascii=False, allow_nan=False, indent=2)
    with replacing(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")


def _rates(
    compared: Compared,
    ids: Sequence[str],
    clusters: Mapping[str, str] | None,
    more_labels: Sequence[int],
    seed: int,
) -> Rates:
    labels = compared.labels
    others = [verdict for verdict in compared.unlabelled if verdict.value is not None]
    sides = _sides(compared, others, clusters)
    for more in more_labels:
        if not 0 < more <= len(others):
            raise ConfigError(
                f"{more} more labels: the run has {len(others)} rows with a verdict and no label",
                field="more_labels",
                hint="give a number from 1 to that",
            )
    unlabelled = {verdict.id.strip() for verdict in compared.unlabelled}
    places = [place for place, row_id in enumerate(ids) if row_id not in unlabelled]
    number = len(labels)
    sampling = Sampling(
        labels=difference_p(np.eye(number)[sides.judge], np.eye(number)[sides.rest], seed=seed),
        probabilities=None
        if sides.readings is None or sides.rest_readings is None
        else difference_p(sides.readings, sides.rest_readings, seed=seed),
        block=block_p(np.array(places, dtype=np.int64), len(ids)),
    )
    statuses = Counter(str(each.status) for each in (*compared.verdicts, *compared.unlabelled))
    values = compared.values
    return Rates(
        metric=compared.metric,
        labels=labels,
        scale=compared.scale,
        matches=compared.matches,
        statuses=dict(statuses.most_common()),
        labelled=len(sides.human),
        unlabelled=len(others),
        figures=rate_figures(sides, labels, values=values),
        sampling=sampling,
        warnings=tuple(_warnings(sampling, statuses, others, clusters)),
        expected={
            more: rate_figures(sides, labels, values=values, more=more) for more in more_labels
        },
    )


def _sides(
    compared: Compared, others: Sequence[Verdict], clusters: Mapping[str, str] | None
) -> Sides:
    judged = compared.judge >= 0
    places = {label: place for place, label in enumerate(compared.labels)}
    rest_readings = distributions(others, compared.labels)
    readings = compared.distributions
    if readings is None or rest_readings is None:
        readings = rest_readings = None
    ids = [verdict.id.strip() for verdict in others]
    return Sides(
        human=compared.human[judged],
        judge=compared.judge[judged],
        rest=np.array([places[str(verdict.value)] for verdict in others], dtype=np.int64),
        readings=None if readings is None else readings[judged],
        rest_readings=_shaped(rest_readings, len(places)),
        clusters=None if clusters is None else _numbered(compared.clusters[judged]),
        rest_clusters=None
        if clusters is None
        else _numbered(np.array([clusters.get(row_id, f" {row_id}") for row_id in ids])),
    )


def _shaped(readings: Floats | None, number: int) -> Floats | None:
    return None if readings is None else readings.reshape(-1, number)


def _numbered(names: Any) -> Ints:
    return np.unique(names, return_inverse=True)[1].astype(np.int64)


def _warnings(
    sampling: Sampling,
    statuses: Counter[str],
    others: Sequence[Verdict],
    clusters: Mapping[str, str] | None,
) -> list[str]:
    found = []
    failed = 1 - statuses["ok"] / statuses.total()
    if failed > _FAILED:
        found.append(
            f"{failed:.1%} of the rows have no verdict and are left out: the shares are of the "
            "others, and may differ on these"
        )
    for what, p in (("labels", sampling.labels), ("probabilities", sampling.probabilities)):
        if p is not None and p < _SUSPECT:
            found.append(
                f"the labelled rows are no random sample of the run: the judge's {what} differ "
                f"from those of the other rows (p = {p:.3f})"
            )
    if sampling.block < _SUSPECT:
        found.append(
            "the labelled rows stand in one block of the run: a random sample would be spread out"
        )
    if clusters is not None:
        alone = sum(verdict.id.strip() not in clusters for verdict in others)
        if alone:
            found.append(
                f"{alone} unlabelled rows have no cluster in the human file, and are taken as "
                "single ones: give a line without a label to each"
            )
    return found
