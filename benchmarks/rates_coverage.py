"""How often do the 95% intervals of corrected rates hold the true share?

Simulation: rows with a true label, a judge that errs at set rates, a few rows labelled at random.
For each setting the share of trials whose interval holds the truth, of those that give one, and
how many do: an estimate may also be refused. The last line is one JSON document.

    python benchmarks/rates_coverage.py --trials 1000
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.statistics import shares
from localjudge.statistics.bootstrap import Floats, Ints

ROWS = 1000  # of the run, not labelled
PRIORS = (
    ((0.95, 0.05), (0.7, 0.3), (0.5, 0.5)),
    ((0.65, 0.3, 0.05), (0.4, 0.3, 0.3), (0.3, 0.2, 0.5)),
)
ACCURACIES = (0.95, 0.85, 0.7, 0.0)  # 0 stands for chance


def main() -> None:
    """Simulate every setting and print its coverage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the JSON document to this file too")
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    settings = []
    for priors in PRIORS:
        for accuracy in ACCURACIES:
            for prior in priors:
                for labelled in (50, 100, 200):
                    found = trial(np.array(prior), accuracy, labelled, options.trials, random)
                    settings.append(found)
                    print(line(found), flush=True)
    whole = {"trials": options.trials, "seed": options.seed, "rows": ROWS, "settings": settings}
    text = json.dumps(whole)
    if options.json is not None:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text)


def trial(
    prior: Floats, accuracy: float, labelled: int, trials: int, random: np.random.Generator
) -> dict[str, Any]:
    """Return the coverage of each estimate of the last label's share."""
    number, last = len(prior), len(prior) - 1
    right = accuracy or 1 / number
    errors = np.full((number, number), (1 - right) / (number - 1))
    np.fill_diagonal(errors, right)
    people, judge, read = rows(prior, errors, (trials, labelled), random)
    _, rest, rest_read = rows(prior, errors, (trials, ROWS), random)
    table = counted(people * number + judge, number**2).reshape(trials, number, number)
    given = (people == last).astype(float)
    said, rest_said = (judge == last).astype(float), (rest == last).astype(float)
    inverted = shares.rogan_gladen(table, counted(rest, number))
    estimates = {
        "labelled": shares.labelled_share(given),
        "rogan_gladen": tuple(part[..., last] for part in inverted),
        "ppi_labels": shares.powered_share(given, said, rest_said),
        "ppi_probabilities": shares.powered_share(given, read, rest_read),
    }
    told = (given.sum(1) > 0) & (given.sum(1) < labelled)
    found: dict[str, Any] = {
        "labels": number,
        "accuracy": round(right, 3),
        "share": round(float(prior[last]), 3),
        "n": labelled,
    }
    for name, (value, low, high) in estimates.items():
        defined = np.isfinite(value) & np.isfinite(low) & (told | (name == "labelled"))
        held = (low <= prior[last]) & (prior[last] <= high)
        found[name] = {
            "given": float(defined.mean()),
            "coverage": float(held[defined].mean()) if defined.any() else None,
            "half_width": float((high - low)[defined].mean() / 2) if defined.any() else None,
        }
    return found


def rows(
    prior: Floats, errors: Floats, shape: tuple[int, int], random: np.random.Generator
) -> tuple[Ints, Ints, Floats]:
    """Return the true labels, the verdicts, and the judge's probability of the last label."""
    people = (random.random((*shape, 1)) > np.cumsum(prior)[:-1]).sum(-1)
    judge = (random.random((*shape, 1)) > np.cumsum(errors, 1)[people, :-1]).sum(-1)
    sure = random.uniform(0.6, 1.0, shape)
    other = (1 - sure) / (len(prior) - 1)
    return people, judge, np.where(judge == len(prior) - 1, sure, other)


def counted(places: Ints, number: int) -> Floats:
    """Return how often each place stands in each trial, shape (trials, number)."""
    trials = len(places)
    flat = (places + number * np.arange(trials)[:, None]).ravel()
    return np.bincount(flat, minlength=trials * number).reshape(trials, number).astype(float)


def line(found: dict[str, Any]) -> str:
    """Return one setting as text."""
    head = "{labels} labels, judge {accuracy:.2f}, share {share:.2f}, n {n:3d}".format(**found)
    cells = []
    for name in ("labelled", "rogan_gladen", "ppi_labels", "ppi_probabilities"):
        coverage = found[name]["coverage"]
        shown = "    -" if coverage is None else f"{coverage:.3f}"
        cells.append(f"{name} {shown} of {found[name]['given']:.2f}")
    return "  ".join([head, *cells])


if __name__ == "__main__":
    main()
