"""Shares of labels in many rows, corrected for a judge's errors by the rows that people labelled.

Sources: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22
(1927), 209-212; Rogan and Gladen, "Estimating prevalence from the results of a screening test",
American Journal of Epidemiology 107 (1978), 71-76; Fieller, "Some problems in interval estimation",
JRSS B 16 (1954), 175-185; Angelopoulos, Duchi and Zrnic, "PPI++: efficient prediction-powered
inference" (2023).

Rows stand on the last axis. All functions also take many samples at once, on the axes before it.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from localjudge.statistics.bootstrap import Floats, Ints
from localjudge.statistics.figures import quotient

_NORMAL = NormalDist().inv_cdf(0.975)
# A judge is inverted only if it tells the labels apart with p < 0.001: of judges at chance, most
# intervals at p < 0.05 would be accidents, and those miss too often.
_CLEAR = NormalDist().inv_cdf(0.9995)
# How many rows more the error rates and residuals are reckoned with. Of the values simulated, those
# whose intervals cover the truth most nearly in 95 of 100 trials (benchmarks/rates_coverage.py).
_SMOOTHING = 0.5
_PSEUDO = 0.25
_ROUNDING = 1e-9

Estimate = tuple[Floats, Floats, Floats]  # value and ends of the 95% interval, NaN where undefined


def t_quantile(freedom: float) -> float:
    """Return the 97.5% quantile of Student's t, by its expansion around the normal one.

    It is Fisher and Cornish's, with four terms: within 1% from 3 degrees of freedom on.
    """
    z = _NORMAL
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def design_effect(residuals: Floats, clusters: Ints) -> float:
    """Return how many times as large the variance of a mean is as if all rows were single.

    Args:
        residuals: What each row adds to the estimate, less the mean; shape (rows,).
        clusters: The cluster of each row, counted from 0, every number in use.

    Returns:
        At least 1: rows that belong together never count for more than single ones. Without any
        residual, nothing shows how alike they are; it is then that of rows that are all alike.
    """
    number = int(clusters.max(initial=-1)) + 1
    single = float((residuals**2).sum())
    if number < 2 or number == len(residuals):
        return 1.0
    if single <= _ROUNDING * len(residuals):
        return len(residuals) / number
    sums = np.bincount(clusters, weights=residuals, minlength=number)
    return max(1.0, number / (number - 1) * float((sums**2).sum()) / single)


def wilson(share: Floats, rows: Floats, quantile: float = _NORMAL) -> tuple[Floats, Floats]:
    """Return the ends of Wilson's interval of a share.

    Args:
        share: The share, from 0 to 1.
        rows: How many single rows would tell as much about it.
        quantile: Of the normal distribution, or of Student's t where `rows` is estimated.
    """
    square = quantile**2
    middle = (share + square / (2 * rows)) / (1 + square / rows)
    spread = np.sqrt(share * (1 - share) / rows + square / (4 * rows**2))
    half = quantile * spread / (1 + square / rows)
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def labelled_share(
    given: Floats, *, effect: float = 1.0, units: int = 0, more: int = 0
) -> Estimate:
    """Return the share of a label in the rows that people labelled, with Wilson's interval.

    Args:
        given: 1 where people gave the label, else 0; shape (..., rows).
        effect: The design effect of clusters.
        units: How many clusters there are, if rows belong together.
        more: How many rows more to reckon with, for the width to expect.
    """
    rows = given.shape[-1]
    share = given.mean(-1)
    quantile = t_quantile(units - 1) if units else _NORMAL
    return share, *wilson(share, np.full_like(share, (rows + more) / effect), quantile)


def tuned(given: Floats, read: Floats, rest: Floats) -> Floats:
    """Return lambda: how much weight the judge deserves (PPI++, power tuning for a mean).

    It is Cov(given, read) / ((1 + n/N) Var(read)), the variance over all rows; 0 where the judge
    reads the same from every row.

    Args:
        given: What people said of n rows, as numbers; shape (..., n).
        read: What the judge said of the same rows; shape (..., n).
        rest: What it said of N further rows; shape (..., N).
    """
    both = np.concatenate([read, rest], axis=-1)
    centred = given - given.mean(-1, keepdims=True)
    covariance = (centred * (read - read.mean(-1, keepdims=True))).mean(-1)
    ratio = given.shape[-1] / rest.shape[-1]
    weight = quotient(covariance, (1 + ratio) * both.var(-1, ddof=1))
    return np.where(np.isfinite(weight), weight, 0.0)


def powered_mean(
    given: Floats,
    read: Floats,
    rest: Floats,
    *,
    error: float = 1.0,
    effect: float = 1.0,
    rest_effect: float = 1.0,
    units: int = 0,
    more: int = 0,
) -> tuple[Floats, Floats]:
    """Return the prediction-powered mean (PPI++), and its variance.

    The mean is `mean(given) + lambda * (mean(rest) - mean(read))`, its variance
    `Var(given - lambda * read) / n + lambda^2 * Var(read) / N`. To the squared residuals comes a
    quarter of a row that the judge has wrong, or of a cluster: a few dozen without an error do not
    show that it makes none. The variance is never more than that of the labelled rows alone.

    Args:
        given: What people said of n rows, as numbers; shape (..., n), n at least 3.
        read: What the judge said of the same rows; shape (..., n).
        rest: What it said of N further rows; shape (..., N).
        error: By how much a verdict is wrong that is wrong.
        effect: The design effect of clusters among the labelled rows.
        rest_effect: The same among the others.
        units: How many clusters there are, if rows belong together.
        more: How many of the N rows to take as labelled too, for the width to expect.
    """
    rows, others = given.shape[-1], rest.shape[-1]
    weight = tuned(given, read, rest)
    mean = given.mean(-1) + weight * (rest.mean(-1) - read.mean(-1))
    # Lambda depends on how many rows are labelled.
    weight = weight * (others - more) / others
    residuals = given - weight[..., None] * read
    squares = ((residuals - residuals.mean(-1, keepdims=True)) ** 2).sum(-1)
    size = rows / units if units else 1.0
    pseudo = _PSEUDO * (error * size) ** 2 * rows / (rows + more)
    variance = (squares * effect + pseudo) / (rows - 2) / (rows + more)
    spread = np.concatenate([read, rest], axis=-1).var(-1, ddof=1)
    variance += weight**2 * spread / max(others - more, 1) * rest_effect
    alone = given.var(-1, ddof=1) / (rows + more) * effect
    return mean, np.minimum(variance, alone)


def powered_share(
    given: Floats,
    read: Floats,
    rest: Floats,
    *,
    effect: float = 1.0,
    rest_effect: float = 1.0,
    units: int = 0,
    more: int = 0,
) -> Estimate:
    """Return the prediction-powered share of a label, not clipped, with its interval.

    The interval is Wilson's, of as many single rows as would have the variance of `powered_mean`,
    with the quantile of Student's t. Undefined if people gave the label to none of the rows, or to
    all of them.

    Args:
        given: 1 where people gave the label, else 0; shape (..., n), n at least 5.
        read: The judge's probability of the label, or 1 and 0 of its verdict; shape (..., n).
        rest: The same of N further rows; shape (..., N).
        effect: The design effect of clusters among the labelled rows.
        rest_effect: The same among the others.
        units: How many clusters there are, if rows belong together.
        more: How many of the N rows to take as labelled too, for the width to expect.
    """
    share, variance = powered_mean(
        given, read, rest, effect=effect, rest_effect=rest_effect, units=units, more=more
    )
    worth = quotient(given.var(-1, ddof=1), variance)
    freedom = (units or given.shape[-1]) - 2
    low, high = wilson(np.clip(share, 0.0, 1.0), worth, t_quantile(freedom))
    return np.where(np.isfinite(worth), share, np.nan), low, high


def inverted(table: Floats, rest: Floats) -> Floats:
    """Return the shares of the labels in all rows by Rogan and Gladen, not clipped.

    The judge's shares are a mixture of what it says of the rows of each true label; the weights of
    that mixture are the shares looked for. With two labels it is their formula
    `(p + specificity - 1) / (sensitivity + specificity - 1)`.

    Args:
        table: Number of labelled rows by human label and verdict, shape (..., labels, labels).
        rest: Number of the other rows by verdict, shape (..., labels).

    Returns:
        Shape (..., labels); NaN where the matrix cannot be inverted.
    """
    said = table.sum(-2) + rest
    rates = quotient(table, table.sum(-1, keepdims=True))
    usable = np.asarray(np.isfinite(rates).all((-2, -1)))
    rates = np.where(usable[..., None, None], rates, 0.0)
    regular = _regular(rates)
    safe = np.where(regular[..., None, None], rates, np.eye(rates.shape[-1]))
    mixture = (said / said.sum(-1, keepdims=True))[..., None]
    shares = np.linalg.solve(np.swapaxes(safe, -1, -2), mixture)[..., 0]
    return np.where(regular[..., None], shares, np.nan)


def _regular(matrices: Floats) -> NDArray[np.bool_]:
    return np.asarray(np.linalg.matrix_rank(matrices) == matrices.shape[-1], dtype=np.bool_)


def smoothed(table: Floats) -> Floats:
    """Return the judge's error rates with half a row more of each true label, in equal parts."""
    more = table + _SMOOTHING / table.shape[-1]
    rates: Floats = more / more.sum(-1, keepdims=True)
    return rates


def smoothed_inverse(table: Floats, rest: Floats) -> tuple[Floats, Floats]:
    """Return what `rogan_gladen` computes its interval from: the inverse matrix, and the shares.

    It is of the error rates of `smoothed`, so that none is taken for 0.

    Returns:
        The inverse, shape (..., labels, labels): row k turns the judge's shares into that of label
        k. And the shares that come of it, shape (..., labels).
    """
    number = table.shape[-1]
    rates = smoothed(table)
    said = table.sum(-2) + rest
    usable = _regular(rates)
    safe = np.where(usable[..., None, None], np.swapaxes(rates, -1, -2), np.eye(number))
    inverse = np.where(usable[..., None, None], np.linalg.inv(safe), np.nan)
    return inverse, (inverse * (said / said.sum(-1, keepdims=True))[..., None, :]).sum(-1)


def rogan_gladen(
    table: Floats,
    rest: Floats,
    *,
    effects: Floats | float = 1.0,
    rest_effects: Floats | float = 1.0,
    units: int = 0,
    more: int = 0,
) -> Estimate:
    """Return each label's share in all rows by Rogan and Gladen, not clipped, with its interval.

    The interval holds every share t that a test does not rule out (Fieller): `(s - t)^2 <= z^2
    V(t)`, where s is the share and V(t) the variance that it has if the true one is t and the other
    labels share the rest as estimated. V has the noise of both samples, and of every error rate.
    The rates in it are those of `smoothed`. No interval is given unless the judge tells the
    label from the others with p < 0.001.

    Args:
        table: Number of labelled rows by human label and verdict, shape (..., labels, labels).
        rest: Number of the other rows by verdict, shape (..., labels).
        effects: The design effect of clusters among the labelled rows, of each label.
        rest_effects: The same among the others.
        units: How many clusters there are, if rows belong together: z is then Student's.
        more: How many of the other rows to take as labelled too, for the width to expect.

    Returns:
        Shares, lower and upper ends, shape (..., labels). The lower end is -inf and the upper inf
        where the judge does not tell the label from others; both are NaN where no share fits.
    """
    number = table.shape[-1]
    rows, others = table.sum((-2, -1))[..., None], rest.sum(-1)[..., None]
    grown = (rows + more) / rows
    part = (rows + more) / (rows + others)
    inverse, shares = smoothed_inverse(table, rest)
    rates = smoothed(table)
    counted = table.sum(-1) * grown + _SMOOTHING
    # The variance of each label's inverse row over the verdicts of each true label.
    second = np.einsum("...lj,...kj->...kl", rates, inverse**2)
    spread = (second - np.eye(number)) / counted[..., None, :]
    said = (table.sum(-2) + rest) / (rows + others)
    of_rest = ((inverse**2 * said[..., None, :]).sum(-1) - shares**2) / np.maximum(others - more, 1)
    within = np.clip(shares, 0.0, None)
    mixed = np.where(np.eye(number) == 1, 0.0, within[..., None, :])
    mixed = np.nan_to_num(quotient(mixed, mixed.sum(-1, keepdims=True)))
    away = (1 - part) ** 2
    own = away * np.diagonal(spread, axis1=-2, axis2=-1) * effects
    other = away * (mixed**2 * spread).sum(-1) * effects
    known = part**2 / (rows + more) * effects
    fixed = away * of_rest * rest_effects
    # V(t) = fixed + own t^2 + other (1 - t)^2 + known t (1 - t): the test is a quadratic in t.
    square = (t_quantile(units - 2) if units else _NORMAL) ** 2
    lead = 1 - square * (own + other - known)
    half = shares + square * (known - 2 * other) / 2
    last = shares**2 - square * (fixed + other)
    root = np.sqrt(np.maximum(half**2 - lead * last, 0.0))
    bounded = 1 - _CLEAR**2 * (own + other - known) > 0
    divisor = np.where(bounded, lead, 1.0)
    low, high = (half - root) / divisor, (half + root) / divisor
    outside = (high < 0) | (low > 1)
    low = np.where(outside, np.nan, np.clip(low, 0.0, 1.0))
    high = np.where(outside, np.nan, np.clip(high, 0.0, 1.0))
    unbounded = ~bounded & np.isfinite(shares)
    low, high = np.where(unbounded, -np.inf, low), np.where(unbounded, np.inf, high)
    return inverted(table, rest), low, high
