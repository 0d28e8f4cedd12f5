"""One run from start to end: rows in, a folder of verdicts out."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from localjudge.cache import VerdictCache
from localjudge.data_check import check_data
from localjudge.encoding import PromptMode
from localjudge.engines import pick_engine
from localjudge.errors import ConfigError, RunError
from localjudge.judge import Judge
from localjudge.loop import Loop
from localjudge.metrics import Metric
from localjudge.models import find_model, fingerprint
from localjudge.options import Options, check_choice, check_mapping, check_type
from localjudge.progress import Progress, ProgressFile
from localjudge.runs import open_run
from localjudge.store import RunStore, Tally
from localjudge.tables import checked_rows, open_table
from localjudge.tasks import check_asking

if TYPE_CHECKING:
    import datasets
    import pandas as pd

    from localjudge.heads import Head

_ASIDE = ("name", "path", "description", "inputs")  # no verdict depends on these parts of a metric
_PACKAGES = ("localjudge-llm", "torch", "transformers", "tokenizers", "outlines", "outlines_core")


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished run.

    Attributes:
        folder: The run folder, with `verdicts.jsonl`, `verdicts.parquet` and `run.json`.
        rows: Number of rows in the data.
        tallies: What the verdicts are, metric by metric.
        judged: Verdicts that the model made since this start; the others were there before.
        seconds: Time that judging them took, without loading the model.
        reused: Verdicts that were taken from the cache since this start.
    """

    folder: Path
    rows: int
    tallies: tuple[Tally, ...]
    judged: int
    seconds: float
    reused: int = 0

    @property
    def failed(self) -> int:
        """Number of verdicts that are not `ok`."""
        return sum(tally.rows - tally.ok for tally in self.tallies)

    def to_dataset(self) -> datasets.Dataset:
        """Return the verdicts as a dataset, with the columns of `verdicts.parquet`."""
        return open_run(self.folder).to_dataset()

    def to_pandas(self) -> pd.DataFrame:
        """Return the verdicts as a frame, with the columns of `verdicts.parquet`."""
        return open_run(self.folder).to_pandas()


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
    cache: str | PathLike[str] | None = None,
    retry_failed: bool = True,
    max_failures: int | None = None,
    heads: Sequence[str | PathLike[str]] = (),
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
        cache: Folder of verdicts to take what was judged before from, in whatever run, and to
            keep new ones in; only those that are `ok`.
        retry_failed: Judge the rows again that an earlier start left without a verdict.
        max_failures: Stop when more verdicts than that have failed since this start.
        heads: Folders of fitted heads, which decide in place of the model's own probabilities; one
            for each metric, or none at all.
        on_progress: Called when judging begins, and after every chunk of rows.
        on_note: Called with one line on what was decided: the engine, the longest prompt.
        open_judge: Called as `Judge.open` to load the model.

    Raises:
        DataError: the data changed while it was judged.
        RunError: more than `max_failures` verdicts have failed.
        LocaljudgeError: the run was stopped for another reason; verdicts made before are kept.
    """
    check_choice("prompt_mode", prompt_mode, get_args(PromptMode))
    check_mapping("mapping", mapping or {}, '{"input": "column"}')
    check_type("settings", settings, Mapping, type(None))
    for name, text in (("data_format", data_format), ("split", split), ("id_column", id_column)):
        check_type(name, text, str, type(None))
    for name, number in (("limit", limit), ("max_failures", max_failures)):
        check_type(name, number, int, type(None))
    check_type("retry_failed", retry_failed, bool)
    check_type("engine", engine, str)
    if isinstance(metrics, Metric) or not all(isinstance(metric, Metric) for metric in metrics):
        raise ConfigError(
            "this is no list of metrics",
            field="metrics",
            hint='give metrics, such as [find_metric("toxicity")]',
        )
    if max_failures is not None and max_failures < 0:
        raise ConfigError(f"{max_failures} is negative", field="max_failures")
    asking = Options.of(options or {})
    for metric in metrics:
        check_asking(metric, explain=asking.explain, orders=asking.permute_labels)
    columns = _columns(metrics, mapping or {})
    inputs = {name for metric in metrics for name in metric.inputs}
    _check_inputs(inputs, asking.truncate, "truncate")
    fitted = _heads(metrics, heads, asking)
    table = open_table(data, data_format=data_format, split=split, id_column=id_column, limit=limit)
    check = check_data(table, _required(metrics, columns, mapping or {}), Path(out))
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
        **({"heads": {name: head.facts.tensors for name, head in fitted.items()}} if heads else {}),
        "info": {
            "data": str(table.source.path.resolve() if table.source.path else table.source.name),
            "data_mark": check.mark,
            "data_format": data_format,
            "split": split,
            "id_column": table.id_column,
            "limit": limit,
            "metrics": {metric.name: _parts(metric) for metric in metrics},
            "model": str(folder.path),
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "python": platform.python_version(),
            "machine": platform.platform(),
            "versions": {name: _version(name) for name in _PACKAGES},
        },
    }
    total = check.rows * len(metrics)
    with RunStore.open(out, config) as store:
        store.check_places(check.rows)
        kept = store.kept(retry_failed=retry_failed)
        with ProgressFile(store.folder, Progress(kept, total, 0, 0, 0.0), on_progress) as progress:
            if kept < total:
                checked = check.full()
                with ExitStack() as held:
                    known = None if cache is None else held.enter_context(VerdictCache.open(cache))
                    judge = held.enter_context(
                        open_judge(
                            folder.path,
                            engine=engine,
                            settings=settings,
                            prompt_mode=prompt_mode,
                            **({"embed": True} if heads else {}),
                            **asdict(asking),
                        )
                    )
                    room = judge.engine.context_length
                    on_note(f"up to {room} tokens for a prompt and its answer")
                    for metric in metrics if heads else ():
                        fitted[metric.name].check(metric, judge.judged_by(fingerprint(folder.path)))
                    if not heads:
                        judge.check_engine()
                    store.bind(judge.fingerprint)
                    judged_by = {
                        **{name: config[name] for name in ("model", "prompt_mode", "options")},
                        **({"heads": config["heads"]} if heads else {}),
                        "fingerprint": judge.fingerprint,
                        "context_length": judge.engine.context_length,
                        "engine_args": (settings or {}).get("engine_args"),
                        "version": _version("localjudge-llm"),
                    }
                    tasks = [
                        judge.prepare(metric, columns[metric.name], fitted.get(metric.name))
                        for metric in metrics
                    ]
                    loop = Loop(judge, store, known, judged_by, retry_failed, max_failures)
                    loop.run(tasks, checked_rows(table, checked), progress)
            tallies = store.tallies()
            if any(tally.rows != check.rows for tally in tallies):
                raise RunError(
                    "verdicts are missing, although all rows were judged", path=store.folder
                )
            progress.enter("writing")
            store.finish()
        now = progress.now
        return RunResult(store.folder, check.rows, tallies, now.judged, now.seconds, now.reused)


def _heads(
    metrics: Sequence[Metric], folders: Sequence[str | PathLike[str]], asking: Options
) -> dict[str, Head]:
    """Load the heads, one for each metric, or none."""
    from localjudge.heads import Head

    if not folders:
        return {}
    if asking != Options(truncate=asking.truncate):
        raise ConfigError(
            "a head decides in one reading: without explanation, thinking, guided decoding or "
            "orders of labels",
            field="head",
        )
    heads = {head.facts.metric: head for head in map(Head.load, folders)}
    names = [metric.name for metric in metrics]
    if len(heads) < len(folders) or heads.keys() != set(names):
        raise ConfigError(
            f"heads for {', '.join(sorted(heads))}, and metrics {', '.join(names)}",
            field="head",
            hint="give one head for each metric of the run",
        )
    return heads


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
) -> dict[str, str]:
    """Return the columns that the data must have, each with an input that reads it.

    That of an optional input is one of them only if it is named.
    """
    required: dict[str, str] = {}
    for metric in metrics:
        for name, column in columns[metric.name].items():
            if name not in metric.optional or name in mapping:
                required.setdefault(column, name)
    return required


def _parts(metric: Metric) -> dict[str, Any]:
    """Return what a metric says, so that a later start can tell what became another."""
    parts = {name: value for name, value in asdict(metric).items() if name not in _ASIDE}
    return {name: value for name, value in parts.items() if value}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
