"""Small regularised fits: labels from numbers, by softmax regression or along a scale.

Both are convex, so the result does not depend on where the search starts; L-BFGS of torch finds it.
Softmax regression is multinomial logistic regression. Along a scale it is the proportional-odds
model: McCullagh, "Regression models for ordinal data", JRSS B 42 (1980), 109-142.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from localjudge.statistics.bootstrap import Floats, Ints

if TYPE_CHECKING:
    from torch import Tensor

_STEPS = 500
# Of what is not shrunk otherwise, so that a label that never occurs has a finite chance.
_BIAS_PENALTY = 1e-3


@dataclass(frozen=True, slots=True)
class Softmax:
    """Log-probabilities that are linear in the features, but for normalising.

    Attributes:
        weights: Shape (features, labels).
        bias: Shape (labels,).
    """

    weights: Floats
    bias: Floats

    def log_probabilities(self, features: Floats) -> Floats:
        """Return the log-probability of each label, shape (rows, labels)."""
        logits = features @ self.weights + self.bias
        top = logits.max(axis=1, keepdims=True)
        logits = logits - top
        normalised: Floats = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return normalised


@dataclass(frozen=True, slots=True)
class Ordinal:
    """Steps of a scale by proportional odds: P(step <= k) = sigmoid(threshold k - score).

    Attributes:
        weights: Of the features in the score, shape (features,).
        thresholds: Ascending, one fewer than there are steps.
    """

    weights: Floats
    thresholds: Floats

    def log_probabilities(self, features: Floats) -> Floats:
        """Return the log-probability of each step, shape (rows, steps)."""
        import torch

        scores = torch.from_numpy(features @ self.weights)
        found: Floats = _ordinal(scores, torch.from_numpy(self.thresholds)).numpy()
        return found


Fit = Softmax | Ordinal


def fit_softmax(features: Floats, labels: Ints, classes: int, penalty: float) -> Softmax:
    """Fit a softmax regression: log loss, summed, plus `penalty` / 2 times the squared weights.

    Args:
        features: Shape (rows, features), of like spread, since all are shrunk alike.
        labels: Place of each row's label, shape (rows,).
        classes: How many labels there are; those that do not occur become improbable.
        penalty: How much weights are shrunk; 1 / C of scikit-learn.
    """
    import torch

    width = features.shape[1]
    x, y = torch.from_numpy(np.ascontiguousarray(features)), torch.from_numpy(labels)

    def loss(parameters: Tensor) -> Tensor:
        weights = parameters[: width * classes].view(width, classes)
        bias = parameters[width * classes :]
        fit = torch.nn.functional.cross_entropy(x @ weights + bias, y, reduction="sum")
        return fit + penalty / 2 * (weights**2).sum() + _BIAS_PENALTY / 2 * (bias**2).sum()

    found = _minimum(loss, np.zeros((width + 1) * classes))
    return Softmax(found[: width * classes].reshape(width, classes), found[width * classes :])


def fit_scaled(logits: Floats, labels: Ints, penalty: float, *, bias: bool) -> Softmax:
    """Fit one factor for all log-probabilities, and a bias for each label or none.

    Without a bias this is temperature scaling: Guo et al., "On calibration of modern neural
    networks", ICML 2017. The factor is not negative: what is less probable stays so.

    Args:
        logits: Log-probability of each label, shape (rows, labels).
        labels: Place of each row's label.
        penalty: How much the factor is shrunk.
        bias: Whether each label has a bias.
    """
    import torch

    classes = logits.shape[1]
    x, y = torch.from_numpy(np.ascontiguousarray(logits)), torch.from_numpy(labels)

    def loss(parameters: Tensor) -> Tensor:
        factor = torch.nn.functional.softplus(parameters[0])
        shifted = x * factor + (parameters[1:] if bias else 0.0)
        fit = torch.nn.functional.cross_entropy(shifted, y, reduction="sum")
        return fit + penalty / 2 * factor**2 + _BIAS_PENALTY / 2 * (parameters[1:] ** 2).sum()

    found = _minimum(loss, np.zeros(1 + classes))
    factor = float(np.logaddexp(0.0, found[0]))
    return Softmax(factor * np.eye(classes), found[1:] if bias else np.zeros(classes))


def fit_ordinal(features: Floats, labels: Ints, steps: int, penalty: float) -> Ordinal:
    """Fit proportional odds: log loss, summed, plus `penalty` / 2 times the squared weights.

    Args:
        features: Shape (rows, features), of like spread.
        labels: Place of each row's step, counted from the lowest.
        steps: How many steps the scale has.
        penalty: How much weights are shrunk.
    """
    import torch

    width = features.shape[1]
    x, y = torch.from_numpy(np.ascontiguousarray(features)), torch.from_numpy(labels)

    def thresholds(parameters: Tensor) -> Tensor:
        # The first one, and what each further one lies above it: so they ascend.
        first, gaps = parameters[:1], torch.nn.functional.softplus(parameters[1:]) + 1e-6
        return torch.cat([first, first + gaps.cumsum(0)])

    def loss(parameters: Tensor) -> Tensor:
        weights = parameters[:width]
        of_steps = _ordinal(x @ weights, thresholds(parameters[width:]))
        fit = torch.nn.functional.nll_loss(of_steps, y, reduction="sum")
        shrunk = _BIAS_PENALTY / 2 * (parameters[width:] ** 2).sum()
        return fit + penalty / 2 * (weights**2).sum() + shrunk

    start = np.zeros(width + steps - 1)
    start[width] = -1.0
    found = _minimum(loss, start)
    with torch.no_grad():
        return Ordinal(found[:width], thresholds(torch.from_numpy(found[width:])).numpy())


@dataclass(frozen=True, slots=True)
class Linear:
    """A way to fit labels to any numbers: they are brought to like spread first.

    Attributes:
        ordinal: Whether by proportional odds, for scales; else by softmax regression.
        penalty: How much weights are shrunk.
    """

    ordinal: bool
    penalty: float

    def fit(self, features: Floats, labels: Ints, classes: int) -> Fit:
        """Fit; what is returned reads the features as they are given here."""
        mean, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        standard = (features - mean) / spread
        if self.ordinal:
            along = fit_ordinal(standard, labels, classes, self.penalty)
            weights = along.weights / spread
            return Ordinal(weights, along.thresholds + mean @ weights)
        linear = fit_softmax(standard, labels, classes, self.penalty)
        weights = linear.weights / spread[:, None]
        return Softmax(weights, linear.bias - mean @ weights)


@dataclass(frozen=True, slots=True)
class BaseRate:
    """The labels' shares, whatever the features say."""

    def fit(self, features: Floats, labels: Ints, classes: int) -> Fit:
        """Fit a bias for each label."""
        return fit_softmax(np.zeros_like(features), labels, classes, 1.0)


def _ordinal(scores: Tensor, thresholds: Tensor) -> Tensor:
    """Return log P(step) = log(sigmoid(upper) - sigmoid(lower)), without cancellation."""
    import torch

    edge = torch.full((len(scores), 1), torch.inf, dtype=scores.dtype)
    inner = thresholds - scores[:, None]
    upper, lower = torch.cat([inner, edge], dim=1), torch.cat([-edge, inner], dim=1)
    # sigmoid(u) - sigmoid(l) = sigmoid(u) sigmoid(-l) (1 - exp(l - u))
    sigmoids = torch.nn.functional.logsigmoid(upper) + torch.nn.functional.logsigmoid(-lower)
    return sigmoids + torch.log(-torch.expm1(lower - upper))


def _minimum(loss: Callable[[Tensor], Tensor], start: Floats) -> Floats:
    """Return where a smooth convex function is smallest."""
    import torch

    parameters = torch.from_numpy(start.copy()).requires_grad_()
    search = torch.optim.LBFGS(
        [parameters],
        max_iter=_STEPS,
        tolerance_grad=1e-7,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        search.zero_grad()
        value = loss(parameters)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    # The arrays are small: threads would wait for each other, on a busy machine for minutes.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        search.step(closure)  # type: ignore[no-untyped-call]
    finally:
        torch.set_num_threads(threads)
    found: Floats = parameters.detach().numpy()
    return found
