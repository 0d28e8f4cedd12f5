"""One run from start to end: rows in, a folder of verdicts out."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_args

from localjudge.encoding import PromptMode
from localjudge.engines import pick_engine
from localjudge.errors import ConfigError, RunError
from localjudge.judge import Asked, Judge
from localjudge.metrics import Metric
from localjudge.models import find_model, fingerprint
from localjudge.options import Options, check_choice
from localjudge.records import Row, Status
from localjudge.store import RunStore, Tally
from localjudge.tables import check_table, checked_rows, open_table
from localjudge.tasks import Task, check_asking

_PACKAGES = ("localjudge-llm", "torch", "transformers", "tokenizers", "outlines", "outlines_core")


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        done: Verdicts that exist, of this start and of earlier ones.
        total: Verdicts that there will be: rows times metrics.
        judged: Verdicts made since this start.
        failed: How many of those are not `ok`.
        seconds: Time since judging began.
    """

    done: int
    total: int
    judged: int
    failed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished run.

    Attributes:
        folder: The run folder, with `verdicts.jsonl`, `verdicts.parquet` and `run.json`.
        rows: Number of rows in the data.
        tallies: What the verdicts are, metric by metric.
        judged: Verdicts made since this start; the others were there before.
        seconds: Time that judging them took, without loading the model.
    """

    folder: Path
    rows: int
    tallies: tuple[Tally, ...]
    judged: int
    seconds: float

    @property
    def failed(self) -> int:
        """Number of verdicts that are not `ok`."""
        return sum(tally.rows - tally.ok for tally in self.tallies)


def run_file(
    metrics: Sequence[Metric],
    data: Any,
    *,
    model: str | PathLike[str],
    out: str | PathLike[str],
    data_format: str | None = None,
    split: str | None = None,
    engine: str = "auto",
    settings: Mapping[str, Any] | None = None,
    prompt_mode: PromptMode = "chat",
    options: Mapping[str, Any] | None = None,
    mapping: Mapping[str, str] | None = None,
    id_column: str | None = None,
    limit: int | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_note: Callable[[str], None] = lambda _: None,
    open_judge: Callable[..., Judge] = Judge.open,
) -> RunResult:
    """Judge every row of some data by every metric; go on where an earlier start was stopped.

    Everything that can be wrong with metrics, data, model folder and run folder is found before
    the model is loaded.

    Args:
        metrics: The metrics, of different names.
        data: A data file, a dataset folder, `-` for standard input, a `datasets.Dataset` or a
            pandas data frame: see `open_source`.
        model: Name or folder of a model.
        out: Run folder: new, empty, or that of the same run.
        data_format: Format of a file whose name does not say it, or of standard input.
        split: The split of a dataset that has several.
        engine: Name of the engine; `auto` is the one that suits this machine.
        settings: Further options of the engine.
        prompt_mode: See `Judge`.
        options: Decoding, explanations and the like: arguments of `options.Options`.
        mapping: Input to column, for every metric that has the input.
        id_column: Column of the rows' ids; by default `id`, else the row's number.
        limit: Judge only so many rows, from the first.
        on_progress: Called when judging begins, and after every chunk of rows.
        on_note: Called with one line on what was decided: the engine, the longest prompt.
        open_judge: Called as `Judge.open` to load the model.

    Raises:
        DataError: the data changed while it was judged.
        LocaljudgeError: the run was stopped for another reason; verdicts made before are kept.
    """
    check_choice("prompt_mode", prompt_mode, get_args(PromptMode))
    asking = Options.of(options or {})
    for metric in metrics:
        check_asking(metric, explain=asking.explain, orders=asking.permute_labels)
    columns = _columns(metrics, mapping or {})
    inputs = {name for metric in metrics for name in metric.inputs}
    _check_inputs(inputs, asking.truncate, "truncate")
    table = open_table(data, data_format=data_format, split=split, id_column=id_column, limit=limit)
    check = check_table(table, _required(metrics, columns, mapping or {}))
    folder = find_model(model)
    if engine == "auto":
        engine, why = pick_engine()
        on_note(f"engine {engine}: {why}")
    config = {
        "metrics": {metric.name: metric.digest for metric in metrics},
        "data": {"digest": check.digest, "rows": check.rows, "columns": columns},
        "model": fingerprint(folder.path),
        "engine": {"name": engine, **(settings or {})},
        "prompt_mode": prompt_mode,
        "options": asdict(asking),
        "info": {
            "data": str(table.source.path.resolve() if table.source.path else table.source.name),
            "model": str(folder.path),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "python": platform.python_version(),
            "machine": platform.platform(),
            "versions": {name: _version(name) for name in _PACKAGES},
        },
    }
    total = check.rows * len(metrics)
    judged = failed = 0
    seconds = 0.0
    with RunStore.open(out, config) as store:
        store.check_places(check.rows)
        kept = sum(tally.ok for tally in store.tallies())
        if kept < total:
            with open_judge(
                folder.path,
                engine=engine,
                settings=settings,
                prompt_mode=prompt_mode,
                **asdict(asking),
            ) as judge:
                on_note(f"up to {judge.engine.context_length} tokens for a prompt and its answer")
                judge.check_engine()
                store.bind(judge.fingerprint)
                tasks = [judge.prepare(metric, columns[metric.name]) for metric in metrics]
                start = time.monotonic()
                on_progress(Progress(kept, total, 0, 0, 0.0))
                rows = checked_rows(table, check)
                with closing(_ahead(_asked(judge, tasks, rows, store))) as chunks:
                    for positions, asked in chunks:
                        verdicts = judge.answer(asked)
                        store.save(zip(positions, verdicts, strict=True))
                        judged += len(verdicts)
                        failed += sum(verdict.status is not Status.OK for verdict in verdicts)
                        seconds = time.monotonic() - start
                        on_progress(Progress(kept + judged, total, judged, failed, seconds))
        tallies = store.tallies()
        if any(tally.rows != check.rows for tally in tallies):
            raise RunError("verdicts are missing, although all rows were judged", path=store.folder)
        store.finish()
        return RunResult(store.folder, check.rows, tallies, judged, seconds)


def _columns(metrics: Sequence[Metric], mapping: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """Return each metric's columns; every entry of `mapping` must serve some metric."""
    names = [metric.name for metric in metrics]
    if not names:
        raise ConfigError("no metric is given", field="metrics")
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"the metric {name} is given twice", field="metrics")
    columns = {metric.name: metric.columns() for metric in metrics}
    _check_inputs({name for each in columns.values() for name in each}, mapping, "map")
    return {
        metric.name: metric.columns(
            {name: column for name, column in mapping.items() if name in columns[metric.name]}
        )
        for metric in metrics
    }


def _check_inputs(known: Collection[str], names: Iterable[str], field: str) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(
                f"no metric of this run has an input {name!r}",
                field=field,
                hint=f"inputs: {', '.join(sorted(known))}",
            )


def _required(
    metrics: Sequence[Metric],
    columns: Mapping[str, Mapping[str, str]],
    mapping: Mapping[str, str],
) -> dict[str, None]:
    """Return the columns that the data must have: that of an optional input only if it is named."""
    required: dict[str, None] = {}
    for metric in metrics:
        for name, column in columns[metric.name].items():
            if name not in metric.optional or name in mapping:
                required[column] = None
    return required


def _asked(
    judge: Judge, tasks: Sequence[Task], rows: Iterable[Row], store: RunStore
) -> Iterator[tuple[list[int], Asked]]:
    """Yield chunks of rows that wait for a verdict: their places in the data, and the prompts."""
    numbered = enumerate(rows)
    while chunk := list(islice(numbered, judge.chunk_rows)):
        for task in tasks:
            waiting = store.pending(task.metric.name, [(place, row.id) for place, row in chunk])
            todo = [item for item, wait in zip(chunk, waiting, strict=True) if wait]
            if todo:
                yield [place for place, _ in todo], judge.ask(task, [row for _, row in todo])


def _ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """Yield `items`, each made in another thread while the one before it is in use."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
