"""Heads fitted on rows that people labelled, and measured on rows that the fit has not seen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from localjudge.answers import Open, Scale, Text
from localjudge.calibration import cross_calibrated_arrays
from localjudge.cross_validation import FOLDS, choose, folds, judged_unseen, log_loss
from localjudge.engines.base import Failure
from localjudge.errors import ConfigError, DataError
from localjudge.fitting import Linear
from localjudge.heads import FORMAT, Facts, FigureShape, Head, Reach
from localjudge.human_labels import read_human
from localjudge.judge import Judge
from localjudge.metrics import Metric
from localjudge.model_files import fingerprint
from localjudge.models import find_model
from localjudge.outcomes import Prompt, Refusal
from localjudge.records import Row
from localjudge.statistics.bootstrap import Floats, Ints, Resampling
from localjudge.statistics.figures import Figure, estimate
from localjudge.statistics.judging import judge_figures
from localjudge.statistics.raters import consensus, tally
from localjudge.tables import open_table
from localjudge.tasks import Task

LEAST_ROWS = 20
LEAST_OF_LABEL = 5
SHOWN = ("accuracy", "balanced_accuracy", "kappa", "kappa_quadratic", "log_loss")
_STRENGTHS = (3000.0, 1000.0, 300.0, 100.0, 30.0, 10.0)
_CURVE = (25, 50, 100, 200, 400, 800, 1600)

Figures = Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class Labelled:
    """What a model sees in labelled rows, one entry for each row.

    Attributes:
        states: The last hidden states, shape (rows, hidden size).
        labels: Place of the human label.
        clusters: Number of the row's group, counted from 0, every number in use.
        distributions: The probabilities of the answers as the model gives them, shape
            (rows, answers); None if the engine reads hidden states only.
    """

    states: Floats
    labels: Ints
    clusters: Ints
    distributions: Floats | None


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted head and what it is worth.

    Attributes:
        head: The head.
        figures: Figures on the same rows of `raw`, the judge as it is, of it `calibrated`, and
            `fitted`; the latter two by cross-validation. Those of the former two are missing where
            the engine reads hidden states only.
        gain: By how much the log loss of a row is below that of the labels' shares alone.
        curve: Number of labels to kappa (quadratic for scales) with so many.
        left_out: Rows that are left out, with the reason, and how many.
    """

    head: Head
    figures: Mapping[str, Figures]
    gain: Figure
    curve: Mapping[int, float]
    left_out: Mapping[str, int]

    @property
    def worth_it(self) -> bool:
        """Whether the head says more than the labels' shares alone, beyond chance."""
        fitted = self.figures["fitted"]
        kappa = fitted.get("kappa_quadratic", fitted["kappa"])
        no_loss = self.gain.high is None or self.gain.high > 0
        return self.gain.above(0) or (kappa.above(0) and no_loss)


def fit_head(
    metric: Metric,
    data: str | PathLike[str],
    *,
    model: str | PathLike[str],
    label_column: str = "label",
    id_column: str | None = None,
    group_column: str | None = None,
    map_labels: Mapping[str, str] | None = None,
    mapping: Mapping[str, str] | None = None,
    engine: str = "auto",
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    on_rows: Callable[[int], None] = lambda _: None,
    open_judge: Callable[..., Judge] = Judge.open,
) -> Fitted:
    """Fit a head for a metric on rows that people labelled.

    Args:
        metric: A metric with a fixed list of labels, or a scale.
        data: The rows, with their labels in a column.
        model: Name or folder of the model.
        label_column: The column of the labels: text or an integer, or a list of several raters'.
        id_column: The column of the ids; by default `id`, else the line's number.
        group_column: The column of what belongs together, such as a document or an author: such
            rows are never on both sides when the head is tried.
        map_labels: Human label to answer, where the two are called differently.
        mapping: Column of each input that is not the metric's default.
        engine: See `open_engine`; `settings` are its further arguments.
        settings: `device`, `dtype`, `engine_args`.
        seed: Where the random numbers begin.
        on_rows: Called with the number of rows that the model has read.
        open_judge: Called as `Judge.open` to load the model.

    Raises:
        ConfigError: the metric cannot be fitted.
        DataError: the data cannot be read, or there are too few labels.
        EngineError: the model cannot be loaded.
    """
    answers = metric.answers
    if isinstance(answers, Open | Text) or metric.pair is not None:
        raise ConfigError(
            f"{metric.name} has no answers that are the same for all rows and asked in one order, "
            "so no head can give them",
            field="metric",
        )
    names = [str(value) for value in answers.values]
    human = read_human(
        data, label_column=label_column, id_column=id_column, cluster_column=group_column
    )
    placed = human.placed(names, map_labels or {})
    values = np.array(answers.values, dtype=float) if isinstance(answers, Scale) else None
    given = {row_id: _settled([place for _, place in each], values, len(names))
             for row_id, each in placed.items()}  # fmt: skip
    _check_counts(metric.name, names, [place for place in given.values() if place >= 0])
    left_out = {"raters are split evenly": sum(place < 0 for place in given.values())}
    rows = (row for row in open_table(data, id_column=id_column))
    rows = (row for row in rows if given.get(row.id.strip(), -1) >= 0)
    folder = find_model(model)
    with open_judge(folder.path, engine=engine, settings=settings, embed=True) as judge:
        task = judge.prepare(metric, mapping)
        ids, states, distributions = [], [], []
        for row, state, distribution in _read(judge, task, rows, on_rows):
            if isinstance(state, str):
                left_out[state] = left_out.get(state, 0) + 1
            else:
                ids.append(row.id.strip())
                states.append(state)
                distributions.append(distribution)
        judged_by = judge.judged_by(fingerprint(folder.path))
    groups = [human.clusters.get(row_id, f"row {row_id}") for row_id in ids]
    labels = np.array([given[row_id] for row_id in ids], dtype=np.int64)
    _check_counts(metric.name, names, labels.tolist())
    known = all(distribution is not None for distribution in distributions)
    labelled = Labelled(
        states=np.array(states, dtype=np.float64),
        labels=labels,
        clusters=np.unique(groups, return_inverse=True)[1].astype(np.int64),
        distributions=np.array(distributions) if known else None,
    )
    return _fitted(
        metric,
        labelled,
        names,
        values,
        judged_by=judged_by,
        data=_digest(data),
        left_out={reason: count for reason, count in left_out.items() if count},
        seed=seed,
    )


def _read(
    judge: Judge, task: Task, rows: Iterator[Row], on_rows: Callable[[int], None]
) -> Iterator[tuple[Row, Any, Any]]:
    """Yield each row with its hidden state, or why there is none, and its distribution."""
    total = 0
    while chunk := list(islice(rows, judge.chunk_rows)):
        asked = judge.ask(task, chunk)
        prompts: dict[int, Prompt] = {}
        failed: dict[int, str] = {}
        for place, questions in enumerate(asked.asked):
            made = questions if isinstance(questions, Refusal) else asked.made[questions[0]]
            if isinstance(made, Refusal):
                failed[place] = str(made.status)
            else:
                prompts[place] = made
        trees = [prompt.variant.tree for prompt in prompts.values()]
        ids = [tree.extend(p.ids) for tree, p in zip(trees, prompts.values(), strict=True)]
        states = dict(zip(prompts, judge.engine.embed(ids), strict=True))
        choices = dict(zip(prompts, judge.engine.choose(ids, trees), strict=True)) if (
            judge.engine.name != "vllm") else {}  # fmt: skip
        for place, row in enumerate(chunk):
            state = states.get(place)
            if place in failed or isinstance(state, Failure):
                yield row, failed.get(place, "engine_error"), None
                continue
            choice = choices.get(place)
            known = None if choice is None or isinstance(choice, Failure) else choice.probabilities
            yield row, state, known
        total += len(chunk)
        on_rows(total)


def _fitted(
    metric: Metric,
    labelled: Labelled,
    names: Sequence[str],
    values: Floats | None,
    *,
    judged_by: Mapping[str, str],
    data: str,
    left_out: Mapping[str, int],
    seed: int,
) -> Fitted:
    states, labels, clusters = labelled.states, labelled.labels, labelled.clusters
    ways = [
        Linear(ordinal, penalty)
        for penalty in _STRENGTHS
        for ordinal in ((True, False) if values is not None else (False,))
    ]
    count = len(names)
    probabilities, base = judged_unseen(ways, states, labels, clusters, count, seed)
    gained = log_loss(np.log(base), labels) - log_loss(np.log(probabilities), labels)
    [gain] = estimate(
        lambda weights: {"gain": weights @ gained / weights.sum(axis=1)},
        Resampling(clusters, seed=seed),
        {"gain": ""},
    ).values()
    sides = {"fitted": probabilities}
    if labelled.distributions is not None:
        raw = labelled.distributions
        calibrated = cross_calibrated_arrays(
            raw, labels, clusters, scale=values is not None, seed=seed
        )
        sides = {"raw": raw, "calibrated": calibrated, **sides}
    figures = {
        side: judge_figures(
            labels,
            found.argmax(axis=1),
            names,
            values=values,
            distributions=found,
            clusters=clusters,
            seed=seed,
        )
        for side, found in sides.items()
    }
    way = choose(ways, states, labels, clusters, count, seed)
    curve = _learning_curve(ways, labelled, count, values, seed)
    counts = np.bincount(labels, minlength=count).tolist()
    facts = Facts(
        format=FORMAT,
        metric=metric.name,
        digest=metric.digest,
        judged_by=dict(judged_by),
        labels=list(names),
        ordinal=way.ordinal,
        penalty=way.penalty,
        counts=dict(zip(names, counts, strict=True)),
        data=data,
        figures={
            side: {name: FigureShape(**figure.to_dict()) for name, figure in shown(each).items()}
            for side, each in figures.items()
        },
        curve={str(number): kappa for number, kappa in curve.items()},
        tensors="",
    )
    head = Head(facts, way.fit(states, labels, count), Reach.of(states))
    return Fitted(head, figures, gain, curve, left_out)


def _learning_curve(
    ways: Sequence[Linear], labelled: Labelled, count: int, values: Floats | None, seed: int
) -> dict[int, float]:
    """Return kappa with so many labels: on the same rows, by fits on a part of the others."""
    states, labels, clusters = labelled.states, labelled.labels, labelled.clusters
    random = np.random.default_rng(seed)
    splits = list(folds(labels, clusters, FOLDS, seed))
    least = min(len(known) for known, _ in splits)
    name = "kappa" if values is None else "kappa_quadratic"
    curve = {}
    for number in _CURVE:
        if number > least:
            break
        found = np.empty((len(labels), count))
        for known, out in splits:
            part = random.permutation(known)[:number]
            within = np.unique(clusters[part], return_inverse=True)[1].astype(np.int64)
            way = choose(ways, states[part], labels[part], within, count, seed)
            fit = way.fit(states[part], labels[part], count)
            found[out] = np.exp(fit.log_probabilities(states[out]))
        figures = judge_figures(
            labels, found.argmax(axis=1), [str(n) for n in range(count)], values=values,
            clusters=clusters, resamples=100,
        )  # fmt: skip
        kappa = figures[name].value
        if kappa is not None:
            curve[number] = kappa
    return curve


def _settled(places: Sequence[int], values: Floats | None, count: int) -> int:
    """Return the label on which the raters of one row settle, -1 where there is none."""
    given = np.array(places, dtype=np.int64)
    counts = tally(np.zeros(len(given), dtype=np.int64), given, (1, count))
    return int(consensus(counts, values)[0])


def _check_counts(metric: str, names: Sequence[str], labels: Sequence[int]) -> None:
    counts = np.bincount(np.array(labels, dtype=np.int64), minlength=len(names))
    short = [name for name, count in zip(names, counts, strict=True) if count < LEAST_OF_LABEL]
    if len(labels) >= LEAST_ROWS and not short:
        return
    listed = ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))
    raise DataError(
        f"too few labels to fit {metric}: {listed}",
        hint=f"label at least {LEAST_ROWS} rows, and {LEAST_OF_LABEL} of each answer",
    )


def shown(figures: Figures) -> dict[str, Figure]:
    """Return the figures that a head is judged by."""
    return {name: figures[name] for name in SHOWN if name in figures}


def _digest(path: str | PathLike[str]) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
