"""A figure: a number with its interval, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from localjudge.statistics.bootstrap import NO_SPREAD, Floats, Ints, Resampling, interval

__all__ = ["Figure", "Floats", "Ints", "Statistic", "estimate", "joined", "mean_of_defined"]
__all__ += ["on_rows", "quotient"]

# Weights of the rows, shape (samples, rows), to the value of each figure, shape (samples,). It is
# NaN where the figure is undefined. Weights of 1 give the figure of the data themselves; counts of
# a resample give that of the resample. The name of a figure of one label is `figure:label`.
Statistic = Callable[[Floats], dict[str, Floats]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its 95% interval.

    Attributes:
        value: The number; None where it is undefined.
        low: Lower end of the interval; None where there is none.
        high: Upper end of the interval; None where there is none.
        method: How the interval was made: `bca` or `percentile` by the bootstrap; of shares
            `wilson` or `fieller`; `student` of means.
        reason: Why there is no value, or a value without an interval, or that a value was clipped.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    method: Literal["bca", "percentile", "wilson", "fieller", "student"] | None = None
    reason: str | None = None

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval; None where there is none."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def above(self, level: float) -> bool:
        """Say whether the figure is above a level, by its whole interval.

        Where all resamples have the value itself, by that; without any interval, it is not.
        """
        if self.value is None or (
            self.low is None and not (self.reason or "").startswith(NO_SPREAD)
        ):
            return False
        return (self.value if self.low is None else self.low) > level

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as plain values."""
        return asdict(self)


def estimate(
    statistic: Statistic, resampling: Resampling, undefined: Mapping[str, str]
) -> dict[str, Figure]:
    """Return the figures of a statistic, each with its interval.

    Args:
        statistic: What is computed.
        resampling: The rows, and how they are drawn.
        undefined: Why a figure is undefined where it is, by its name without the label.
    """
    values = statistic(resampling.all)
    drawn = _gathered(statistic, resampling.draws())
    left_out = _gathered(statistic, resampling.left_out())
    figures = {}
    for name, [value] in values.items():
        if not isfinite(value):
            figures[name] = Figure(None, reason=undefined[name.partition(":")[0]])
            continue
        low, high, method, reason = interval(float(value), drawn[name], left_out[name])
        figures[name] = Figure(float(value), low, high, method, reason)
    return figures


def _gathered(statistic: Statistic, weights: Iterable[Floats]) -> dict[str, Floats]:
    batches = [statistic(batch) for batch in weights]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def joined(*statistics: Statistic) -> Statistic:
    """Return one statistic that gives the figures of all."""
    return lambda weights: {
        name: values for statistic in statistics for name, values in statistic(weights).items()
    }


def on_rows(rows: NDArray[np.bool_], statistic: Statistic) -> Statistic:
    """Return a statistic of some rows as one of all rows, so that all are drawn together."""
    if rows.all():
        return statistic
    return lambda weights: statistic(weights[:, rows])


def quotient(dividend: Floats, divisor: Floats) -> Floats:
    """Return `dividend / divisor`, with NaN where the divisor is 0."""
    undefined = np.full(np.broadcast_shapes(np.shape(dividend), np.shape(divisor)), np.nan)
    quotients: Floats = np.divide(dividend, divisor, out=undefined, where=divisor != 0)
    return quotients


def mean_of_defined(values: Floats) -> Floats:
    """Return the mean over the last axis of what is not NaN; NaN where all of it is."""
    defined = ~np.isnan(values)
    return quotient(np.where(defined, values, 0.0).sum(-1), defined.sum(-1).astype(float))
