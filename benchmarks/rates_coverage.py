"""How often do the 95% intervals of corrected rates hold the truth? By simulation.

Runs are drawn whose true shares are known, people label some rows of each, and every estimate is
asked for its interval. `given` is the share of trials in which there is one (the rest are refused),
`coverage` how many of those hold the truth, `missed` the share of all trials in which an interval
was given that does not, `width` the mean width.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.statistics import shares
from localjudge.statistics.bootstrap import Floats

ROWS = 2000  # of each run that nobody labelled
LABELLED = (50, 100, 200)
POPULATIONS = ((0.05, 0.95), (0.3, 0.7), (0.5, 0.5), (0.05, 0.3, 0.65), (0.3, 0.2, 0.5))
# How far the judge's score of the true label stands above the others, in standard deviations.
JUDGES = {"chance": 0.0, "weak": 1.2, "good": 2.0, "excellent": 3.0}


def main() -> None:
    """Run every setting and print its figures, and all as JSON on the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    settings = []
    for population in POPULATIONS:
        for judge, lift in JUDGES.items():
            for labelled in LABELLED:
                for reads in ("labels", "probabilities"):
                    found = simulate(random, population, lift, labelled, reads, arguments.trials)
                    settings.append(
                        {
                            "population": population,
                            "judge": judge,
                            "labelled": labelled,
                            "reads": reads,
                            **found,
                        }
                    )
                    print(json.dumps(settings[-1]), file=sys.stderr)
    document = {
        "trials": arguments.trials,
        "seed": arguments.seed,
        "unlabelled": ROWS,
        "summary": {name: summary(settings, name) for name in ("labelled", "ppi", "rogan_gladen")},
        "settings": settings,
    }
    text = json.dumps(document)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    print(text)


def simulate(
    random: np.random.Generator,
    population: tuple[float, ...],
    lift: float,
    labelled: int,
    reads: str,
    trials: int,
) -> dict[str, Any]:
    """Return the accuracy of the judge, and for each label how its intervals fare."""
    found: dict[str, list[Any]] = {}
    accuracy = []
    left = trials
    while left:
        batch = min(left, 250)
        left -= batch
        truth, said, read = drawn(random, population, lift, batch, labelled + ROWS)
        if reads == "labels":
            read = np.eye(len(population))[said]
        accuracy.append((truth == said).mean())
        for name, ends in intervals(truth, said, read, labelled).items():
            found.setdefault(name, []).append(ends)
    results: dict[str, Any] = {"accuracy": round(float(np.mean(accuracy)), 3), "figures": []}
    for name, batches in found.items():
        estimate, _, place = name.partition(":")
        low, high = (np.concatenate([ends[side] for ends in batches]) for side in (0, 1))
        share = population[int(place)]
        given = np.isfinite(low) & (high - low < 1)
        right = given & (low <= share) & (share <= high)
        results["figures"].append(
            {
                "estimate": estimate,
                "share": share,
                "given": round(float(given.mean()), 4),
                "coverage": round(float(right.sum() / given.sum()), 4) if given.any() else None,
                "missed": round(float((given & ~right).mean()), 4),
                "width": round(float((high - low)[given].mean()), 4) if given.any() else None,
            }
        )
    return results


def drawn(
    random: np.random.Generator, population: tuple[float, ...], lift: float, runs: int, rows: int
) -> tuple[Any, Any, Floats]:
    """Return true labels, verdicts and probabilities of some runs."""
    number = len(population)
    truth = (random.random((runs, rows))[..., None] > np.cumsum(population)[:-1]).sum(-1)
    scores = random.normal(size=(runs, rows, number)) + lift * np.eye(number)[truth]
    said = scores.argmax(-1)
    odds = np.exp(2 * scores)  # surer than it should be
    return truth, said, odds / odds.sum(-1, keepdims=True)


def intervals(
    truth: Any, said: Any, read: Floats, labelled: int
) -> dict[str, tuple[Floats, Floats]]:
    """Return the ends of each estimate's interval, by estimate and place of the label."""
    runs, number = len(truth), read.shape[-1]
    human, judge = truth[:, :labelled], said[:, :labelled]
    table = np.zeros((runs, number, number))
    np.add.at(table, (np.arange(runs)[:, None], human, judge), 1.0)
    rest = (said[:, labelled:, None] == np.arange(number)).sum(1).astype(float)
    values, low, high = shares.rogan_gladen(table, rest)
    refused = ~np.isfinite(values)
    low, high = np.where(refused, np.nan, low), np.where(refused, np.nan, high)
    found = {}
    for place in range(number):
        given = (human == place).astype(float)
        found[f"labelled:{place}"] = shares.labelled_share(given)[1:]
        value, *ends = shares.powered_share(
            given, read[:, :labelled, place], read[:, labelled:, place]
        )
        found[f"ppi:{place}"] = tuple(np.where(np.isfinite(value), end, np.nan) for end in ends)
        found[f"rogan_gladen:{place}"] = low[:, place], high[:, place]
    return found


def summary(settings: list[dict[str, Any]], estimate: str) -> dict[str, Any]:
    """Return each judge's least and greatest coverage where most trials have an interval."""
    found = {}
    for judge in JUDGES:
        figures = [
            figure
            for setting in settings
            if setting["judge"] == judge
            for figure in setting["figures"]
            if figure["estimate"] == estimate
        ]
        usual = [figure["coverage"] for figure in figures if figure["given"] >= 0.5]
        found[judge] = {
            "figures": len(figures),
            "mostly_given": len(usual),
            "least": min(usual, default=None),
            "greatest": max(usual, default=None),
            "from_92_to_98": sum(0.92 <= coverage <= 0.98 for coverage in usual),
            "most_missed": max(figure["missed"] for figure in figures),
        }
    return found


if __name__ == "__main__":
    main()
