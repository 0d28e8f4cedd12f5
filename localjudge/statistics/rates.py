"""Every estimate of the shares of a run's labels, as figures: arrays in, figures out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite, isinf
from typing import Literal

import numpy as np

from localjudge.statistics import shares
from localjudge.statistics.bootstrap import Floats, Ints
from localjudge.statistics.figures import Figure

LEAST_ROWS = 20
LEAST_CLUSTERS = 10
_UNTOLD = "the judge does not tell this label from others clearly enough (p < 0.001) to invert"
_IMPOSSIBLE = (
    "no share fits the judge's verdicts: its errors on the labelled rows are not those elsewhere"
)


@dataclass(frozen=True, slots=True)
class Sides:
    """The rows of a run that have a verdict: those that people labelled, and the rest.

    Attributes:
        human: Place of the human label of each labelled row.
        judge: Place of the verdict of each labelled row.
        rest: Place of the verdict of each other row.
        readings: The judge's probabilities on the labelled rows, shape (rows, labels); None if it
            gives none: its labels are then taken.
        rest_readings: The same on the other rows.
        clusters: The cluster of each labelled row, counted from 0, every number in use; None if
            each row is one.
        rest_clusters: The same of the other rows.
    """

    human: Ints
    judge: Ints
    rest: Ints
    readings: Floats | None = None
    rest_readings: Floats | None = None
    clusters: Ints | None = None
    rest_clusters: Ints | None = None

    def read(self, number: int) -> tuple[Floats, Floats]:
        """Return the probabilities of both parts, or 1 for the label and 0 for all others."""
        if self.readings is None or self.rest_readings is None:
            return np.eye(number)[self.judge], np.eye(number)[self.rest]
        return self.readings, self.rest_readings

    @property
    def units(self) -> int:
        """How many clusters the labelled rows have; 0 if each row is one."""
        if self.clusters is None:
            return 0
        number = int(self.clusters.max(initial=-1)) + 1
        return 0 if number == len(self.human) else number

    def effect(self, residuals: Floats) -> float:
        """Return the design effect among the labelled rows."""
        return 1.0 if self.clusters is None else shares.design_effect(residuals, self.clusters)

    def rest_effect(self, said: Floats) -> float:
        """Return the design effect among the others, of what the judge says of them."""
        if self.rest_clusters is None or not len(said):
            return 1.0
        return shares.design_effect(said - said.mean(), self.rest_clusters)


def rate_figures(
    sides: Sides, labels: Sequence[str], *, values: Floats | None = None, more: int = 0
) -> dict[str, Figure]:
    """Return the share of each label in all rows, by four estimates; of a scale also the mean.

    The figures of a label are `judge:label`, the share of verdicts, which has no interval, since
    none knows the judge's errors; `labelled:label`, the share in the labelled rows alone;
    `rogan_gladen:label`; and `ppi:label`, by prediction-powered inference (see `shares`). Those of
    a scale are `judge_mean`, `labelled_mean` and `ppi_mean`, of the expected grade where the judge
    gives probabilities.

    The intervals are for what the rows are a sample of. For the rows themselves
    they are a little wide.

    Args:
        sides: The rows.
        labels: All labels that could be given.
        values: The grades, ascending, if the labels are a scale.
        more: How many of the other rows to take as labelled too. The values stay, and the intervals
            are as wide as is then to be expected.
    """
    figures = _judge(sides, labels, values)
    figures |= _labelled(sides, labels, values, more)
    figures |= _rogan_gladen(sides, labels, more)
    return figures | _powered(sides, labels, values, more)


def _judge(sides: Sides, labels: Sequence[str], values: Floats | None) -> dict[str, Figure]:
    said = np.concatenate([sides.judge, sides.rest])
    if not len(said):
        return dict.fromkeys(_names("judge", labels, values), Figure(None, reason="no verdict"))
    reason = "not corrected: it has the judge's errors in it"
    counts = np.bincount(said, minlength=len(labels)) / len(said)
    figures = {
        f"judge:{label}": Figure(float(share), reason=reason)
        for label, share in zip(labels, counts, strict=True)
    }
    if values is not None:
        read, rest = _grades(sides, values)
        figures["judge_mean"] = Figure(float(np.append(read, rest).mean()), reason=reason)
    return figures


def _labelled(
    sides: Sides, labels: Sequence[str], values: Floats | None, more: int
) -> dict[str, Figure]:
    if not len(sides.human):
        reason = "no labelled row has a verdict"
        return dict.fromkeys(_names("labelled", labels, values), Figure(None, reason=reason))
    few = _few_clusters(sides)
    figures = {}
    for place, label in enumerate(labels):
        given = (sides.human == place).astype(float)
        effect = sides.effect(given - given.mean())
        if few:
            figures[f"labelled:{label}"] = Figure(float(given.mean()), reason=few)
            continue
        estimate = shares.labelled_share(given, effect=effect, units=sides.units, more=more)
        figures[f"labelled:{label}"] = _figure(estimate, "wilson")
    if values is not None:
        given = values[sides.human]
        spread = given.var(ddof=1) if len(given) > 1 else 0.0
        if few or not spread > 0:
            reason = few or "no spread: people give one grade only"
            figures["labelled_mean"] = Figure(float(given.mean()), reason=reason)
        else:
            variance = spread / (len(given) + more) * sides.effect(given - given.mean())
            freedom = (sides.units or len(given)) - 1
            figures["labelled_mean"] = _mean(float(given.mean()), float(variance), freedom, values)
    return figures


def _rogan_gladen(sides: Sides, labels: Sequence[str], more: int) -> dict[str, Figure]:
    said = np.concatenate([sides.human, sides.judge, sides.rest])
    # A label that nobody gives has no share to correct, and would make the matrix singular.
    used = np.unique(said)
    reason = _too_little(sides)
    if not reason and len(used) < 2:
        reason = "people and the judge give one label only: nothing to correct"
    if reason:
        return dict.fromkeys(_names("rogan_gladen", labels, None), Figure(None, reason=reason))
    nobody = Figure(None, reason="neither people nor the judge give it")
    figures = dict.fromkeys(_names("rogan_gladen", labels, None), nobody)
    human, judge, rest = (
        np.searchsorted(used, side) for side in (sides.human, sides.judge, sides.rest)
    )
    given = replace(sides, human=human, judge=judge, rest=rest)
    return figures | _inverted(given, [labels[place] for place in used], more)


def _inverted(sides: Sides, labels: Sequence[str], more: int) -> dict[str, Figure]:
    names = _names("rogan_gladen", labels, None)
    number = len(labels)
    table = np.zeros((number, number))
    np.add.at(table, (sides.human, sides.judge), 1.0)
    reason = _singular(table, labels)
    if reason:
        return dict.fromkeys(names, Figure(None, reason=reason))
    rest = np.bincount(sides.rest, minlength=number).astype(float)
    effects, rest_effects = _effects_of_inverse(sides, table, rest)
    values, lows, highs = shares.rogan_gladen(
        table, rest, effects=effects, rest_effects=rest_effects, units=sides.units, more=more
    )
    figures = {}
    for name, value, low, high in zip(names, values, lows, highs, strict=True):
        if isinf(low) or not isfinite(low):
            figures[name] = Figure(None, reason=_UNTOLD if isinf(low) else _IMPOSSIBLE)
        else:
            figures[name] = _figure((value, low, high), "fieller")
    return figures


def _effects_of_inverse(sides: Sides, table: Floats, rest: Floats) -> tuple[Floats, Floats]:
    inverse, found = shares.smoothed_inverse(table, rest)
    number = len(found)
    each = np.clip(found, 0.0, None) / np.maximum(table.sum(1), 1)
    effects = []
    for place, row in enumerate(inverse):
        # What a labelled row adds to the error of the shares: its verdict less its label's mean.
        off = row[sides.judge]
        of_label = np.bincount(sides.human, weights=off, minlength=number) / table.sum(1)
        labelled = sides.effect(each[sides.human] * (off - of_label[sides.human]))
        effects.append((labelled, sides.rest_effect(inverse[place][sides.rest])))
    labelled_effects, rest_effects = np.array(effects).T
    return labelled_effects, rest_effects


def _powered(
    sides: Sides, labels: Sequence[str], values: Floats | None, more: int
) -> dict[str, Figure]:
    reason = _too_little(sides)
    if reason:
        return dict.fromkeys(_names("ppi", labels, values), Figure(None, reason=reason))
    read, rest = sides.read(len(labels))
    figures = {}
    for place, label in enumerate(labels):
        given = (sides.human == place).astype(float)
        reason = _unpowered(given, read[:, place], rest[:, place], f"the label {label!r}")
        if reason:
            figures[f"ppi:{label}"] = Figure(None, reason=reason)
            continue
        effect, rest_effect = _effects_of_mean(sides, given, read[:, place], rest[:, place])
        estimate = shares.powered_share(
            given,
            read[:, place],
            rest[:, place],
            effect=effect,
            rest_effect=rest_effect,
            units=sides.units,
            more=more,
        )
        figures[f"ppi:{label}"] = _figure(estimate, "wilson")
    if values is not None:
        figures["ppi_mean"] = _powered_mean(sides, values, more)
    return figures


def _powered_mean(sides: Sides, values: Floats, more: int) -> Figure:
    given, (read, rest) = values[sides.human], _grades(sides, values)
    reason = _unpowered(given, read, rest, None)
    if reason:
        return Figure(None, reason=reason)
    effect, rest_effect = _effects_of_mean(sides, given, read, rest)
    step = float(np.diff(values).min())
    mean, variance = shares.powered_mean(
        given,
        read,
        rest,
        error=step,
        effect=effect,
        rest_effect=rest_effect,
        units=sides.units,
        more=more,
    )
    freedom = (sides.units or len(given)) - 2
    return _mean(float(mean), float(variance), freedom, values)


def _effects_of_mean(
    sides: Sides, given: Floats, read: Floats, rest: Floats
) -> tuple[float, float]:
    residuals = given - shares.tuned(given, read, rest) * read
    return sides.effect(residuals - residuals.mean()), sides.rest_effect(rest)


def _grades(sides: Sides, values: Floats) -> tuple[Floats, Floats]:
    read, rest = sides.read(len(values))
    return read @ values, rest @ values


def _few_clusters(sides: Sides) -> str | None:
    if sides.clusters is None or not sides.units or sides.units >= LEAST_CLUSTERS:
        return None
    return f"the labelled rows are of {sides.units} clusters: it takes {LEAST_CLUSTERS}"


def _too_little(sides: Sides) -> str | None:
    if not len(sides.rest):
        return "every row is labelled: there is nothing to correct"
    if len(sides.human) < LEAST_ROWS:
        return f"{len(sides.human)} labelled rows have a verdict: it takes {LEAST_ROWS}"
    return _few_clusters(sides)


def _singular(table: Floats, labels: Sequence[str]) -> str | None:
    unseen = [label for label, row in zip(labels, table, strict=True) if not row.any()]
    if unseen:
        return f"people never give {_listed(unseen)}: how the judge errs there is not known"
    never = [label for label, column in zip(labels, table.T, strict=True) if not column.any()]
    if never:
        return f"the judge never gives {_listed(never)} to a labelled row: nothing to invert"
    rates = table / table.sum(1, keepdims=True)
    if np.linalg.matrix_rank(rates) < len(labels):
        return "the judge says the same of two labels or a mixture of them: nothing to invert"
    return None


def _listed(labels: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(map(repr, labels[:most]))
    return shown + (f" and {len(labels) - most} more" if len(labels) > most else "")


def _unpowered(given: Floats, read: Floats, rest: Floats, label: str | None) -> str | None:
    if np.ptp(given) == 0:
        if label is None:
            return "people give one grade only: nothing shows how the judge errs"
        which = "never give" if given[0] == 0 else "give no other than"
        return f"people {which} {label}: nothing shows how the judge errs"
    if np.ptp(np.concatenate([read, rest])) == 0:
        return "the judge says the same of every row: read the labelled rows alone"
    return None


def _names(estimate: str, labels: Sequence[str], values: Floats | None) -> list[str]:
    names = [f"{estimate}:{label}" for label in labels]
    return names if values is None else [*names, f"{estimate}_mean"]


def _figure(estimate: tuple[Floats, ...], method: Literal["wilson", "fieller"]) -> Figure:
    value, low, high = map(float, estimate)
    clipped = min(1.0, max(0.0, value))
    reason = None if clipped == value else f"clipped: the estimate is {value:.4f}"
    # Smoothed error rates move an interval a little, but not off its value.
    return Figure(clipped, min(low, clipped), max(high, clipped), method, reason)


def _mean(mean: float, variance: float, freedom: int, values: Floats) -> Figure:
    half = shares.t_quantile(freedom) * variance**0.5
    least, most = float(values[0]), float(values[-1])
    clipped = min(most, max(least, mean))
    reason = None if clipped == mean else f"clipped: the estimate is {mean:.4f}"
    return Figure(clipped, max(least, mean - half), min(most, mean + half), "student", reason)
