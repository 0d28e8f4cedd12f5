"""From a model's own probabilities to those of the label that people would give.

A model that says "0.9" may be right in six of ten rows, and one that gives all rows the same label
may still tell them apart in its probabilities. A few human labels show both, and a small map from
the log-probabilities of the answers mends it. Which map, and how much it is held back, is chosen by
cross-validation; the figures that are kept come from a second one around that choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from localjudge.compared import Compared
from localjudge.cross_validation import FOLDS, choose, judged_unseen, log_loss
from localjudge.errors import DataError
from localjudge.fitting import BaseRate, Fit, Linear, fit_scaled
from localjudge.statistics.bootstrap import Floats, Ints, Resampling
from localjudge.statistics.figures import Figure, estimate
from localjudge.statistics.judging import judge_figures

LEAST_ROWS = 20
LEAST_OF_LABEL = 5  # of two labels at the least: one for each fold
SHOWN = (
    "log_loss",
    "brier_score",
    "expected_calibration_error",
    "accuracy",
    "kappa",
    "kappa_quadratic",
)
_FLOOR = 1e-9  # a probability below is taken for this one: its logarithm would outweigh all others
_STRENGTHS = (1000.0, 100.0, 10.0, 1.0)

KindName = Literal["base_rate", "temperature", "vector", "ordinal", "multinomial"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of map, with one strength of holding back.

    Attributes:
        name: `base_rate`: the labels' shares, whatever the model says. `temperature`: one factor
            for all log-probabilities. `vector`: that and a bias for each label. `multinomial`: any
            linear map. `ordinal`: proportional odds, for scales.
        penalty: How much is held back.
    """

    name: KindName
    penalty: float

    def fit(self, logits: Floats, labels: Ints, classes: int) -> Fit:
        """Fit the map.

        Args:
            logits: Log-probability of each answer, shape (rows, answers).
            labels: Place of the human label of each row.
            classes: How many answers there are.
        """
        if self.name == "base_rate":
            return BaseRate().fit(logits, labels, classes)
        if self.name in ("temperature", "vector"):
            return fit_scaled(logits, labels, self.penalty, bias=self.name == "vector")
        # An answer that is always improbable can still tell rows apart, by little differences.
        return Linear(self.name == "ordinal", self.penalty).fit(logits, labels, classes)


BASE_RATE = Kind("base_rate", 1.0)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A fitted map of one metric, and what it gains.

    Attributes:
        kind: The kind of map that was chosen.
        fit: The map, fitted on all labelled rows.
        counts: How many rows people gave each label, among those with a verdict.
        raw: Figures of the judge as it is, on these rows.
        calibrated: Figures of the calibrated judge by cross-validation: each row is judged by a map
            that was chosen and fitted without it.
        gain: By how much the log loss of a row is below that of the labels' shares alone, which are
            taken from the same other rows.
    """

    kind: Kind
    fit: Fit
    counts: Mapping[str, int]
    raw: Mapping[str, Figure]
    calibrated: Mapping[str, Figure]
    gain: Figure

    @property
    def worth_it(self) -> bool:
        """Whether the judge says more than the labels' shares alone, beyond chance.

        Either its log loss is lower, or it is no higher and the answers agree with people's: by
        their shares alone kappa is 0.
        """
        kappa = self.calibrated.get("kappa_quadratic", self.calibrated["kappa"])
        no_loss = self.gain.high is None or self.gain.high > 0
        return self.kind != BASE_RATE and (self.gain.above(0) or (kappa.above(0) and no_loss))


def kinds(*, scale: bool) -> list[Kind]:
    """Return the maps to choose from, those that say less first."""
    names: list[KindName] = ["vector", *(("ordinal",) if scale else ()), "multinomial"]
    maps = [Kind(name, strength) for strength in _STRENGTHS for name in names]
    return [BASE_RATE, *maps, Kind("temperature", _STRENGTHS[-1])]


def log_probabilities(distributions: Floats) -> Floats:
    """Return what the maps read: log-probabilities of the answers, each row with its mean at 0."""
    logs = np.log(np.maximum(distributions, _FLOOR))
    centred: Floats = logs - logs.mean(axis=1, keepdims=True)
    return centred


def calibrate(compared: Compared, *, seed: int = 0) -> Calibrated:
    """Choose and fit the map of one metric, and measure what it gains.

    Raises:
        DataError: there is nothing to calibrate, or there are too few labels.
    """
    rows = _usable(compared)
    logits, labels, clusters = _arrays(compared, rows)
    ways, classes = kinds(scale=compared.scale), len(compared.labels)
    probabilities, base = judged_unseen(ways, logits, labels, clusters, classes, seed)
    gained = log_loss(np.log(base), labels) - log_loss(np.log(probabilities), labels)
    resampling = Resampling(clusters, seed=seed)
    [gain] = estimate(
        lambda weights: {"gain": weights @ gained / weights.sum(axis=1)}, resampling, {"gain": ""}
    ).values()
    assert compared.distributions is not None
    figures = [
        judge_figures(
            labels,
            judge,
            compared.labels,
            values=compared.values,
            distributions=distributions,
            clusters=clusters,
            seed=seed,
        )
        for judge, distributions in (
            (compared.judge[rows], compared.distributions[rows]),
            (probabilities.argmax(axis=1), probabilities),
        )
    ]
    kind = choose(ways, logits, labels, clusters, classes, seed)
    counts = np.bincount(labels, minlength=classes)
    return Calibrated(
        kind=kind,
        fit=kind.fit(logits, labels, classes),
        counts=dict(zip(compared.labels, map(int, counts), strict=True)),
        raw=_shown(figures[0]),
        calibrated=_shown(figures[1]),
        gain=gain,
    )


def cross_calibrated(compared: Compared, *, seed: int = 0) -> tuple[Floats, Ints]:
    """Return the calibrated judge by cross-validation: each row by a map made without it.

    Returns:
        The probability of each label, shape (rows, labels), zeros where there is no verdict; and
        the place of each row's answer, -1 where there is none.

    Raises:
        DataError: there is nothing to calibrate, or there are too few labels.
    """
    rows = _usable(compared)
    _, labels, clusters = _arrays(compared, rows)
    assert compared.distributions is not None
    probabilities = cross_calibrated_arrays(
        compared.distributions[rows], labels, clusters, scale=compared.scale, seed=seed
    )
    whole = np.zeros((len(compared.human), len(compared.labels)))
    answers = np.full(len(compared.human), -1, dtype=np.int64)
    whole[rows] = probabilities
    answers[rows] = probabilities.argmax(axis=1)
    return whole, answers


def cross_calibrated_arrays(
    distributions: Floats, labels: Ints, clusters: Ints, *, scale: bool, seed: int = 0
) -> Floats:
    """Return calibrated probabilities, each row's by a map that was made without it.

    Args:
        distributions: Probabilities of the answers, shape (rows, answers).
        labels: Place of each row's human label.
        clusters: Number of each row's cluster, counted from 0, every number in use.
        scale: Whether the answers are the steps of a scale.
        seed: Where the random numbers begin.
    """
    logits, classes = log_probabilities(distributions), distributions.shape[1]
    ways = kinds(scale=scale)
    probabilities, _ = judged_unseen(ways, logits, labels, clusters, classes, seed)
    return probabilities


def _usable(compared: Compared) -> Ints:
    """Return the rows to fit by: those with a verdict.

    Raises:
        DataError: there is nothing to calibrate, or there are too few labels.
    """
    metric = compared.metric
    if compared.distributions is None:
        raise DataError(
            f"the verdicts of {metric} have no probabilities to calibrate",
            hint="judge with direct decoding",
        )
    if compared.own_lists:
        raise DataError(
            f"each row of {metric} has labels of its own: no label could be calibrated by others"
        )
    rows = np.flatnonzero(compared.judge >= 0)
    counts = np.bincount(compared.human[rows], minlength=len(compared.labels))
    enough = (counts >= LEAST_OF_LABEL).sum() >= 2
    units = len(np.unique(compared.clusters[rows]))
    if len(rows) < LEAST_ROWS or not enough or units < FOLDS:
        given = zip(compared.labels, counts, strict=True)
        listed = ", ".join(f"{label} {count}" for label, count in given)
        raise DataError(
            f"too few labels to calibrate {metric}: {listed}"
            + (f", in {units} clusters" if units < len(rows) else ""),
            hint=f"label at least {LEAST_ROWS} rows in {FOLDS} clusters, and {LEAST_OF_LABEL} rows "
            "each of two labels",
        )
    return rows


def _arrays(compared: Compared, rows: Ints) -> tuple[Floats, Ints, Ints]:
    assert compared.distributions is not None
    clusters = np.unique(compared.clusters[rows], return_inverse=True)[1].astype(np.int64)
    return log_probabilities(compared.distributions[rows]), compared.human[rows], clusters


def _shown(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    return {name: figures[name] for name in SHOWN if name in figures}
