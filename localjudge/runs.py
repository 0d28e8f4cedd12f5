"""A run that is there already, read back: its settings and its verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localjudge.errors import DataError, RunError
from localjudge.outputs import unreadable, verdict_table
from localjudge.records import Verdict
from localjudge.settings import read_settings
from localjudge.store import RunStore
from localjudge.tables import Table, TableCheck, check_table, open_table

if TYPE_CHECKING:
    import datasets
    import pandas as pd
    import pyarrow as pa


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

        Of a run that was stopped, those that it made. While it goes, its folder is its own.

        Raises:
            RunLocked: the run is unfinished, and a process is at work on it.
            RunError: a file is damaged or cannot be read.
        """
        if self.finished:
            yield from read_verdicts(self.folder)
            return
        with RunStore.open(self.folder, self.settings) as store:
            yield from store.verdicts()

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
    if not isinstance(settings.get("metrics"), dict | list):
        raise RunError(
            "damaged: it names no metrics",
            path=path,
            hint="restore the file, or choose a new folder",
        )
    return Run(Path(folder), settings)


def judged_table(run: Run, data: str | PathLike[str]) -> tuple[Table, TableCheck]:
    """Open the data that a run judged, read as the run read them, and make sure that they are.

    Raises:
        ConfigError, DataError: the data cannot be read, or are not those of the run.
        RunError: `run.json` does not say what data it judged.
    """
    judged, info = run.settings.get("data"), run.settings.get("info")
    if not isinstance(judged, dict) or not isinstance(info, dict):
        raise RunError("damaged: run.json does not say what data it judged", path=run.folder)
    read_as = ("data_format", "split", "id_column", "limit")
    table = open_table(data, **{name: info.get(name) for name in read_as})
    check = check_table(table)
    if check.digest != judged.get("digest"):
        raise DataError(
            f"is not what this run judged: it has {check.rows} rows, and the run's "
            f"{judged.get('rows')} had other ids or texts",
            path=table.source.name,
            hint=f"give the file as it was: {info.get('data')}",
        )
    return table, check


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
    """
    for verdict in verdicts:
        if status is not None and verdict.status != status:
            continue
        if label is not None and (verdict.value is None or str(verdict.value) != label):
            continue
        if below is not None and (verdict.confidence is None or verdict.confidence >= below):
            continue
        yield verdict


def read_verdicts(folder: str | PathLike[str]) -> Iterator[Verdict]:
    """Yield the verdicts of a finished run.

    Raises:
        RunError: the folder holds no finished run, or its file is damaged.
    """
    path = Path(folder) / "verdicts.jsonl"
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    verdict = Verdict.from_json(line.decode())
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
