"""Fits tried on rows that they have not seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np

from localjudge.fitting import BaseRate, Fit
from localjudge.statistics.bootstrap import Floats, Ints

FOLDS = 5


class Candidate(Protocol):
    """A way to fit labels to features."""

    def fit(self, features: Floats, labels: Ints, classes: int) -> Fit:
        """Fit the place of each row's label, of so many."""
        ...


Way = TypeVar("Way", bound=Candidate)


def folds(labels: Ints, clusters: Ints, number: int, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """Yield the rows to fit and the rows to judge by, `number` times; each row is judged once.

    Rows of one cluster are never on both sides. Within that, labels are spread evenly: clusters go,
    the largest first, to the fold that then has the least crowded labels.

    Args:
        labels: Place of each row's label.
        clusters: Number of each row's cluster, counted from 0, every number in use.
        number: How many folds; as many as there are clusters if those are fewer.
        seed: Where the random numbers begin.
    """
    units, classes = int(clusters.max()) + 1, int(labels.max()) + 1
    counts = np.zeros((units, classes))
    np.add.at(counts, (clusters, labels), 1.0)
    counts = counts / counts.sum(axis=0).clip(1)  # rare labels matter as much as others
    number = min(number, units)
    order = np.random.default_rng(seed).permutation(units)
    order = order[np.argsort(-counts[order].sum(axis=1), kind="stable")]
    filled = np.zeros((number, classes))
    fold = np.zeros(units, dtype=np.int64)
    for unit in order:
        fold[unit] = np.argmin(((filled + counts[unit]) ** 2 - filled**2).sum(axis=1))
        filled[fold[unit]] += counts[unit]
    for each in range(number):
        out = fold[clusters] == each
        yield np.flatnonzero(~out), np.flatnonzero(out)


def choose(
    ways: Sequence[Way], features: Floats, labels: Ints, clusters: Ints, classes: int, seed: int
) -> Way:
    """Return the way with the least log loss in cross-validation; of equals, the first."""
    splits = list(folds(labels, clusters, FOLDS, seed))

    def loss(way: Candidate) -> float:
        losses = [
            log_loss(
                way.fit(features[known], labels[known], classes).log_probabilities(features[out]),
                labels[out],
            )
            for known, out in splits
        ]
        return float(np.concatenate(losses).mean())

    return min(ways, key=loss)


def judged_unseen(
    ways: Sequence[Candidate],
    features: Floats,
    labels: Ints,
    clusters: Ints,
    classes: int,
    seed: int,
) -> tuple[Floats, Floats]:
    """Return the probabilities of each row by a fit that was chosen and fitted without it.

    Returns:
        Those of the chosen ways, and those of the labels' shares in the same other rows; both of
        shape (rows, labels).
    """
    fitted, base = np.empty((2, len(labels), classes))
    for known, out in folds(labels, clusters, FOLDS, seed):
        within = np.unique(clusters[known], return_inverse=True)[1].astype(np.int64)
        way = choose(ways, features[known], labels[known], within, classes, seed)
        for one, found in ((way, fitted), (BaseRate(), base)):
            fit = one.fit(features[known], labels[known], classes)
            found[out] = np.exp(fit.log_probabilities(features[out]))
    return fitted, base


def log_loss(log_probs: Floats, labels: Ints) -> Floats:
    """Return the log loss of each row."""
    loss: Floats = -log_probs[np.arange(len(labels)), labels]
    return loss
