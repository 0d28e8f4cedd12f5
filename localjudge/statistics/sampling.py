"""Are some rows a random sample of all? What can be told from the judge's answers and their places.

Sources: Fisher, "The design of experiments" (1935), chapter 3 (the randomisation test); Phipson and
Smyth, "Permutation p-values should never be zero", SAGMB 9 (2010) (adding one to both counts).
"""

from __future__ import annotations

from math import exp, lgamma

import numpy as np

from localjudge.statistics.bootstrap import Floats, Ints

_DRAWS = 999
_ROUNDING = 1e-9


def difference_p(chosen: Floats, others: Floats, *, seed: int = 0) -> float | None:
    """Return how often random samples differ from the other rows as much as the chosen rows do.

    It is a permutation test with 999 random samples, so at least 0.001. Rows differ by the sum over
    the columns of the squared distance of their means from those of all rows, each divided by the
    column's variance; of one column for each label, that is nearly chi-square.

    Args:
        chosen: What the judge says of the chosen rows, shape (rows, columns).
        others: The same of the other rows.
        seed: Where the random numbers begin.

    Returns:
        None if there are no rows on one side, or all rows are alike.
    """
    rows = np.concatenate([chosen, others])
    if not len(chosen) or not len(others):
        return None
    spread = rows.var(0)
    used = spread > _ROUNDING
    if not used.any():
        return None
    scaled = (rows[:, used] - rows[:, used].mean(0)) / np.sqrt(spread[used])
    number = len(chosen)
    found = float((scaled[:number].sum(0) ** 2).sum())
    random = np.random.default_rng(seed)
    as_far = 1
    for _ in range(_DRAWS):
        drawn = random.choice(len(rows), number, replace=False, shuffle=False)
        as_far += float((scaled[drawn].sum(0) ** 2).sum()) >= found * (1 - _ROUNDING)
    return as_far / (_DRAWS + 1)


def block_p(places: Ints, total: int) -> float:
    """Return how often a random sample stands as close together in the file as the chosen rows do.

    It is exact: of the ways to choose n of N rows, `(N - r + 1) C(r - 1, n - 1) + C(r - 1, n)` have
    the first and the last within r rows of each other.

    Args:
        places: The place in the file of each chosen row, counted from 0.
        total: How many rows the file has.

    Returns:
        1 if fewer than two rows are chosen.
    """
    number = len(places)
    if number < 2:
        return 1.0
    reach = int(places.max() - places.min()) + 1
    if reach == total:
        return 1.0
    every = _log_ways(total, number)
    inner = (total - reach + 1) * exp(_log_ways(reach - 1, number - 1) - every)
    last = exp(_log_ways(reach - 1, number) - every) if reach > number else 0.0
    return min(1.0, inner + last)


def _log_ways(rows: int, number: int) -> float:
    return lgamma(rows + 1) - lgamma(number + 1) - lgamma(rows - number + 1)
