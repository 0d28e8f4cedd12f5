"""Agreement of numbers: correlations and the mean absolute error.

Sources: Kendall, "The treatment of ties in ranking problems", Biometrika 33 (1945), 239-251
(tau-b). Spearman's rho is Pearson's correlation of the mid-ranks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from localjudge.statistics.figures import Floats, Statistic, quotient

_CONSTANT = "one side is the same for every row"
UNDEFINED: Mapping[str, str] = {
    "pearson": _CONSTANT,
    "spearman": _CONSTANT,
    "kendall_tau_b": _CONSTANT,
    "mean_absolute_error": "no rows",
}
_ZERO = 1e-12  # of the largest possible variance: what rounding makes of none


def correlation(human: Floats, judge: Floats, prefix: str = "") -> Statistic:
    """Return the statistic of two sides' numbers.

    Figures: `pearson`, `spearman`, `kendall_tau_b`, `mean_absolute_error`, each after `prefix`.

    Args:
        human: The human number of each row; few different ones, for each costs time.
        judge: The judge's number of each row.
        prefix: What the names of the figures begin with.
    """
    humans, judges = _Ranking(human), _Ranking(judge)
    steps = [(human == step).astype(float) for step in np.unique(human)]
    error = np.abs(human - judge)

    def statistic(weights: Floats) -> dict[str, Floats]:
        ranks = [side.ranks(weights) for side in (humans, judges)]
        figures = {
            "pearson": _pearson(weights, _scaled(human), _scaled(judge)),
            "spearman": _pearson(weights, *ranks),
            "kendall_tau_b": _tau_b(weights, humans, judges, steps),
            "mean_absolute_error": quotient(weights @ error, weights.sum(1)),
        }
        return {prefix + name: values for name, values in figures.items()}

    return statistic


class _Ranking:
    """The order of the rows by a number, rows of one number together."""

    def __init__(self, numbers: Floats) -> None:
        self.order = np.argsort(numbers, kind="stable")
        _, self.starts, self.group = np.unique(
            numbers[self.order], return_index=True, return_inverse=True
        )

    def tied(self, weights: Floats) -> Floats:
        """Return the weight of each number, ascending, shape (samples, numbers)."""
        return np.add.reduceat(weights[:, self.order], self.starts, axis=1)

    def ranks(self, weights: Floats) -> Floats:
        """Return the mid-rank of each row, from -1 to 1, shape (samples, rows)."""
        tied = self.tied(weights)
        middle = quotient(2 * tied.cumsum(1) - tied, weights.sum(1, keepdims=True)) - 1
        ranks = np.empty_like(weights)
        ranks[:, self.order] = middle[:, self.group]
        return ranks


def _scaled(numbers: Floats) -> Floats:
    """Shift and stretch numbers to lie around 0, at most 1 away, for the sake of rounding."""
    around = numbers - numbers.mean()
    furthest = np.abs(around).max()
    return around / furthest if furthest > 0 else np.zeros_like(around)


def _pearson(weights: Floats, one: Floats, other: Floats) -> Floats:
    """Return the weighted correlation; the numbers have shape (rows,) or (samples, rows)."""
    total = weights.sum(1)
    means = [quotient((weights * side).sum(1), total) for side in (one, other)]
    squares = [quotient((weights * side**2).sum(1), total) for side in (one, other)]
    products = quotient((weights * one * other).sum(1), total) - means[0] * means[1]
    variances = [square - mean**2 for square, mean in zip(squares, means, strict=True)]
    varied = (variances[0] > _ZERO) & (variances[1] > _ZERO)
    spread = np.sqrt(np.where(varied, variances[0] * variances[1], 0.0))
    return np.clip(quotient(products, spread), -1.0, 1.0)


def _tau_b(weights: Floats, humans: _Ranking, judges: _Ranking, steps: list[Floats]) -> Floats:
    lower: Floats | float = 0.0  # rows before, on the judge's side, with a lower human number
    before = judges.tied(weights)
    before = before.cumsum(1) - before
    surplus = np.zeros(len(weights))  # concordant pairs less discordant ones
    for step in steps:
        here = judges.tied(weights * step)
        equal = here.cumsum(1) - here
        surplus += (here * (2 * lower + equal - before)).sum(1)
        lower = lower + equal
    total = weights.sum(1) ** 2
    untied = [(total - (side.tied(weights) ** 2).sum(1)) / 2 for side in (humans, judges)]
    return quotient(surplus, np.sqrt(untied[0] * untied[1]))
