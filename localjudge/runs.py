"""A run that is there already, read back: its settings and its verdicts."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localjudge.errors import ConfigError, DataError, RunError
from localjudge.outputs import read_line, unreadable, verdict_table
from localjudge.records import Verdict
from localjudge.settings import read_settings
from localjudge.snapshot import snapshot
from localjudge.store import verdicts_in
from localjudge.tables import Table, TableCheck, check_table, open_table
from localjudge.toml_file import closest

if TYPE_CHECKING:
    import datasets
    import pandas as pd
    import pyarrow as pa


_LISTED = 30  # answers that an error names


@dataclass(frozen=True, slots=True)
class Run:
    """A run on disk, finished or not.

    Attributes:
        folder: The run folder.
        settings: What `run.json` holds: metrics, data, model, engine, options and versions.
    """

    folder: Path
    settings: Mapping[str, Any]

    @property
    def finished(self) -> bool:
        """Whether the run once came to its end, and wrote its output files."""
        return (self.folder / "verdicts.jsonl").exists()

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the verdicts, in the order of the data, and of the metrics within a row.

        Of a run that was stopped, or that is going on, those that it has made. Nothing in its
        folder is touched.

        Raises:
            RunLocked: the run is going on, and writes faster than can be read.
            RunError: there is no verdict yet, or a file is damaged or cannot be read.
        """
        metrics = self.metrics
        with closing(read_verdicts(self.folder) if self.finished else self._made()) as made:
            for verdict in made:
                if verdict.metric not in metrics:
                    raise RunError(
                        f"damaged: it does not name the metric {verdict.metric!r}, which rows were "
                        "judged by",
                        path=self.folder / "run.json",
                        hint="put the file back as it was; it belongs to the verdicts beside it",
                    )
                yield verdict

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics, in their order."""
        return tuple(self.settings["metrics"])

    @property
    def expected(self) -> int | None:
        """Number of verdicts that there are when the run is finished; None if it is not known."""
        data = self.settings.get("data")
        rows = data.get("rows") if isinstance(data, dict) else None
        return rows * len(self.metrics) if isinstance(rows, int) else None

    def _made(self) -> Generator[Verdict, None, None]:
        path = self.folder / "verdicts.db"
        if not path.exists():
            raise RunError(
                "the run has no verdicts yet",
                path=self.folder,
                hint="start it, or wait for its first rows; `localjudge status` says how far it is",
            )
        places = {metric: place for place, metric in enumerate(self.metrics)}
        with snapshot(path) as db:
            yield from verdicts_in(db, path, lambda metric: places.get(metric, len(places)))

    def to_dataset(self) -> datasets.Dataset:
        """Return the verdicts as a dataset, with the columns of `verdicts.parquet`."""
        from datasets import Dataset

        return Dataset(self._table())

    def to_pandas(self) -> pd.DataFrame:
        """Return the verdicts as a frame, with the columns of `verdicts.parquet`."""
        return self._table().to_pandas()

    def _table(self) -> pa.Table:
        return verdict_table(self.verdicts())


def open_run(folder: str | PathLike[str]) -> Run:
    """Open the folder of an earlier run for reading.

    Raises:
        RunError: there is no run, or its `run.json` is damaged.
    """
    path = Path(folder) / "run.json"
    try:
        there = path.exists()
    except OSError as error:
        raise unreadable(path, error) from error
    if not there:
        raise RunError("there is no run here", path=folder, hint="give the folder of a run")
    settings = read_settings(path)
    metrics = settings.get("metrics")
    named = isinstance(metrics, dict | list) and all(isinstance(name, str) for name in metrics)
    if not named or not metrics:
        raise RunError(
            "damaged: it names no metrics",
            path=path,
            hint="put the file back as it was; it says what the verdicts beside it are",
        )
    return Run(Path(folder), settings)


def judged_table(run: Run, data: str | PathLike[str]) -> tuple[Table, TableCheck]:
    """Open the data that a run judged, read as the run read them, and make sure that they are.

    Raises:
        ConfigError, DataError: the data cannot be read, or are not those of the run.
        RunError: `run.json` does not say what data it judged.
    """
    judged, info = run.settings.get("data"), run.settings.get("info")
    read_as = _read_as(info)
    if not isinstance(judged, dict) or not isinstance(info, dict) or read_as is None:
        raise RunError(
            "damaged: it does not say what data were judged, and how they were read",
            path=run.folder / "run.json",
            hint="put the file back as it was, or do without the data",
        )
    table = open_table(data, **read_as)
    check = check_table(table)
    if check.digest != judged.get("digest"):
        raise DataError(
            f"is not what this run judged: it has {check.rows} rows, and the run's "
            f"{judged.get('rows')} had other ids or texts",
            path=table.source.name,
            hint=f"give the file as it was: {info.get('data')}",
        )
    return table, check


def _read_as(info: Any) -> dict[str, Any] | None:
    """Return options of `open_table`, or None where they are not what a run writes."""
    if not isinstance(info, dict):
        return None
    read_as = {name: info.get(name) for name in ("data_format", "split", "id_column", "limit")}
    limit = read_as["limit"]
    texts = all(
        value is None or isinstance(value, str)
        for name, value in read_as.items()
        if name != "limit"
    )
    return read_as if texts and (limit is None or type(limit) is int) else None


def matching(
    verdicts: Iterable[Verdict],
    *,
    status: str | None = None,
    label: str | None = None,
    below: float | None = None,
) -> Iterator[Verdict]:
    """Yield the verdicts that fit all that is given.

    Args:
        verdicts: Any verdicts.
        status: Their status.
        label: Their value, as text.
        below: A confidence that theirs is below; those without one are left out.

    Raises:
        ConfigError: when all were looked at: `label` is no answer of any of them.
    """
    known: dict[str, None] = {}
    for verdict in verdicts:
        if label is not None:
            known |= dict.fromkeys(verdict.probabilities or {})
            if verdict.value is not None:
                known[str(verdict.value)] = None
        if status is not None and verdict.status != status:
            continue
        if label is not None and (verdict.value is None or str(verdict.value) != label):
            continue
        if below is not None and (verdict.confidence is None or verdict.confidence >= below):
            continue
        yield verdict
    if label is not None and label not in known:
        listed = closest(label, list(known)[:_LISTED]) if known else "no row has an answer"
        raise ConfigError("is no answer of this run: " + repr(label), field="label", hint=listed)


def read_verdicts(folder: str | PathLike[str]) -> Generator[Verdict, None, None]:
    """Yield the verdicts of a finished run.

    Raises:
        RunError: the folder holds no finished run, or its file is damaged.
    """
    path = Path(folder) / "verdicts.jsonl"
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    verdict = read_line(line.decode())
                except ValueError as error:
                    raise RunError(
                        f"damaged: {error}",
                        path=path,
                        line=number,
                        hint="remove the file and run the same command again",
                    ) from None
                yield verdict
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(
            "there are no finished verdicts here",
            path=folder,
            hint="give the folder of a run; one that was stopped goes on by its own command",
        ) from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
