"""How good probabilities are: do they rank the rows, and do they mean what they say?

Sources: Brier, "Verification of forecasts expressed in terms of probability", Monthly Weather
Review 78 (1950), 1-3; Guo et al., "On calibration of modern neural networks", ICML 2017 (expected
calibration error).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from localjudge.statistics.figures import Floats, Ints, Statistic, mean_of_defined, quotient

UNDEFINED: Mapping[str, str] = {
    "auroc": "it takes rows that people give the label and rows that they do not",
    "average_precision": "it takes rows that people give the label and rows that they do not",
    "brier_score": "no rows",
    "log_loss": "no rows",
    "expected_calibration_error": "no rows",
}
RANKING = ("auroc", "average_precision")
_BINS = 10
_LEAST = float(np.finfo(float).eps)


def ranking(human: Ints, probabilities: Floats, labels: Sequence[str]) -> Statistic:
    """Return the statistic of how probabilities rank the rows, each label against all others.

    Figures: `auroc:label` and `average_precision:label` of each label, and `auroc` and
    `average_precision`, their means over the labels for which they are defined. An average
    precision is defined only where an AUROC is.

    Args:
        human: Place in `labels` of each row's human label.
        probabilities: Shape (rows, labels).
        labels: The labels.
    """
    sides = [
        ((human == place).astype(float), *_descending(probabilities[:, place]))
        for place in range(len(labels))
    ]

    def statistic(weights: Floats) -> dict[str, Floats]:
        pairs = [_ranked(weights, *side) for side in sides]
        figures = {}
        for place, name in enumerate(RANKING):
            each = [pair[place] for pair in pairs]
            figures[name] = mean_of_defined(np.stack(each, -1))
            for label, values in zip(labels, each, strict=True):
                figures[f"{name}:{label}"] = values
        return figures

    return statistic


def _descending(numbers: Floats) -> tuple[Ints, Ints]:
    order = np.argsort(-numbers, kind="stable")
    _, starts = np.unique(-numbers[order], return_index=True)
    return order, starts


def _ranked(weights: Floats, positive: Floats, order: Ints, starts: Ints) -> tuple[Floats, Floats]:
    """Return AUROC and average precision; rows of one probability stand or fall together."""
    if not 0 < positive.sum() < len(positive):
        nothing = np.full(len(weights), np.nan)
        return nothing, nothing
    hits = np.add.reduceat((weights * positive)[:, order], starts, axis=1)
    both = np.add.reduceat(weights[:, order], starts, axis=1)
    found, shown = hits.cumsum(1), both.cumsum(1)
    total = found[:, -1]
    others = shown[:, -1] - total
    misses = both - hits
    below = others[:, None] - (shown - found) + misses / 2
    auroc = quotient((hits * below).sum(1), total * others)
    precision = np.divide(found, shown, out=np.zeros_like(found), where=shown > 0)
    average = quotient((hits * precision).sum(1), total)
    return auroc, np.where(others > 0, average, np.nan)


def scoring(human: Ints, judge: Ints, probabilities: Floats) -> Statistic:
    """Return the statistic of what probabilities are worth as such.

    Figures: `brier_score`, half the squared distance from the human label, from 0 (best) to 1;
    `log_loss`, in nats, with probabilities of at least 2.2e-16; `expected_calibration_error` of the
    verdict's own probability, in ten bins of equal width.

    Args:
        human: Place of each row's human label.
        judge: Place of each row's verdict.
        probabilities: Shape (rows, labels).
    """
    rows = np.arange(len(human))
    truth = np.zeros_like(probabilities)
    truth[rows, human] = 1.0
    brier = ((probabilities - truth) ** 2).sum(1) / 2
    log_loss = -np.log(np.clip(probabilities[rows, human], _LEAST, 1.0))
    confidence = probabilities[rows, judge]
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    excess = (bins[:, None] == np.arange(_BINS)) * (confidence - (human == judge))[:, None]

    def statistic(weights: Floats) -> dict[str, Floats]:
        total = weights.sum(1)
        return {
            "brier_score": quotient(weights @ brier, total),
            "log_loss": quotient(weights @ log_loss, total),
            "expected_calibration_error": quotient(np.abs(weights @ excess).sum(1), total),
        }

    return statistic
