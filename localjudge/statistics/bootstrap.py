"""The bootstrap: rows, or clusters of rows, drawn again and again, and intervals from what comes.

Efron, "Better bootstrap confidence intervals", JASA 82 (1987), 171-185.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_SPREAD = "no spread"

_BATCH = 400_000  # weights at a time: a few arrays of them fit into a CPU's cache
_GROUPS = 500
_UNDEFINED_SHARE = 0.05
_TAIL = 0.025
_ROUNDING = 1e-12
_NORMAL = NormalDist()

Interval = tuple[float | None, float | None, Literal["bca", "percentile"] | None, str | None]


@dataclass(frozen=True, slots=True)
class Resampling:
    """How often rows are drawn, and which of them only together.

    Attributes:
        clusters: The number of each row's cluster, counted from 0, every number in use. Rows of one
            cluster are drawn together.
        resamples: How many resamples are drawn.
        seed: Where the random numbers begin.
        more: How many clusters more are drawn than there are: what a larger sample would give.
    """

    clusters: Ints
    resamples: int = 2000
    seed: int = 0
    more: int = 0

    @property
    def all(self) -> Floats:
        """The weights of the data themselves, shape (1, rows)."""
        return np.ones((1, len(self.clusters)))

    @property
    def units(self) -> int:
        """How many clusters there are."""
        return int(self.clusters.max(initial=-1)) + 1

    def draws(self) -> Iterator[Floats]:
        """Yield how often each row was drawn, in batches of shape (some resamples, rows)."""
        random = np.random.default_rng(self.seed)
        units = self.units
        for number in self._batches(self.resamples):
            drawn = random.integers(units, size=(number, units + self.more))
            drawn += units * np.arange(number)[:, None]
            counts = np.bincount(drawn.ravel(), minlength=number * units)
            yield counts.reshape(number, units).astype(float)[:, self.clusters]

    def left_out(self) -> Iterator[Floats]:
        """Yield weights that leave out one cluster at a time, in batches.

        Of many clusters, a random group of equal size is left out at a time. The acceleration that
        is computed from these is that of single ones: the skewness of a sum of g values shrinks
        by the root of g, as the root of their number does.
        """
        units = self.units
        groups = np.random.default_rng(self.seed).permutation(units) % min(units, _GROUPS)
        group = groups[self.clusters]
        start = 0
        for number in self._batches(min(units, _GROUPS)):
            yield (group != np.arange(start, start + number)[:, None]).astype(float)
            start += number

    def _batches(self, number: int) -> Iterator[int]:
        most = max(1, _BATCH // max(1, len(self.clusters)))
        for start in range(0, number, most):
            yield min(most, number - start)


def interval(value: float, drawn: Floats, left_out: Floats) -> Interval:
    """Return the 95% interval of a figure: its ends, the method, and why there is none.

    It is Efron's BCa interval: bias-corrected and accelerated. Where the correction cannot be
    computed, it is the plain percentile interval.

    Args:
        value: The figure of the data.
        drawn: The figure of each resample, NaN where undefined.
        left_out: The figure without each cluster in turn, for the acceleration.
    """
    defined = drawn[np.isfinite(drawn)]
    if len(defined) < (1 - _UNDEFINED_SHARE) * len(drawn):
        undefined = len(drawn) - len(defined)
        return None, None, None, f"undefined in {undefined} of {len(drawn)} resamples"
    if np.ptp(defined) <= _ROUNDING * np.abs(defined).max():
        return None, None, None, f"{NO_SPREAD}: every resample has the same value"
    tails = _corrected_tails(value, defined, left_out)
    low, high = np.quantile(defined, tails or (_TAIL, 1 - _TAIL))
    return float(low), float(high), "bca" if tails else "percentile", None


def _corrected_tails(value: float, drawn: Floats, left_out: Floats) -> tuple[float, float] | None:
    """Return the quantiles of the BCa interval, or None where it is not defined."""
    below = float((drawn < value).mean() + (drawn <= value).mean()) / 2
    away = left_out.mean() - left_out  # NaN if it is undefined without some cluster
    squares = float((away**2).sum())
    if not 0 < below < 1 or not squares > 0:
        return None
    acceleration = float((away**3).sum()) / (6 * squares**1.5)
    bias = _NORMAL.inv_cdf(below)
    tails = []
    for tail in (_TAIL, 1 - _TAIL):
        shifted = bias + _NORMAL.inv_cdf(tail)
        if acceleration * shifted >= 1:
            return None
        tails.append(_NORMAL.cdf(bias + shifted / (1 - acceleration * shifted)))
    return tails[0], tails[1]
