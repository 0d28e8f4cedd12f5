"""The run on disk: a folder that outlives a kill, a full disk and a second start."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from os import PathLike
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from localjudge.database import as_run_errors
from localjudge.errors import RunChanged, RunError
from localjudge.lock import locked
from localjudge.outputs import read_line, unreadable, write_lines, write_parquet
from localjudge.records import Status, Verdict
from localjudge.settings import keep_resolved, keep_settings

_OUTPUTS = ("verdicts.jsonl", "verdicts.parquet")
# The key is a row's place and not its id: rows are then appended, whatever the ids look like.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS verdicts (
    position INTEGER NOT NULL,
    metric TEXT NOT NULL,
    row_id TEXT NOT NULL,
    status TEXT NOT NULL,
    verdict TEXT NOT NULL,
    PRIMARY KEY (position, metric)
);
CREATE TABLE IF NOT EXISTS progress (finished INTEGER NOT NULL);
INSERT INTO progress SELECT 0 WHERE NOT EXISTS (SELECT * FROM progress);
CREATE TABLE IF NOT EXISTS summary (tallies TEXT NOT NULL);
"""
# Texts are not counted: hardly two are the same. They have neither label nor score.
_VALUES = (
    "SELECT status, CASE WHEN json_extract(verdict, '$.label') IS NOT NULL"
    " OR json_extract(verdict, '$.score') IS NOT NULL THEN json_extract(verdict, '$.value') END"
    " FROM verdicts WHERE metric = ?"
)
_SUMS = (
    "SELECT avg(json_extract(verdict, '$.confidence')),"
    " avg(json_extract(verdict, '$.answer_mass')),"
    " sum(json_extract(verdict, '$.metadata.order_flip')),"
    " sum(json_extract(verdict, '$.metadata.label_flip')),"
    " coalesce(sum(json_extract(verdict, '$.truncated')), 0),"
    " coalesce(sum(json_extract(verdict, '$.metadata.input_truncated')), 0),"
    " coalesce(sum(json_extract(verdict, '$.metadata.beyond_training')), 0)"
    " FROM verdicts WHERE metric = ? AND status = ?"
)


@dataclass(frozen=True, slots=True)
class Tally:
    """What the verdicts of one metric are.

    Attributes:
        metric: Name of the metric.
        statuses: Number of verdicts of each status, the most frequent first.
        values: Number of verdicts of each answer, the most frequent first; empty for texts.
        confidence: Mean confidence of those that have one, or None.
        answer_mass: Mean answer mass of those that have one, or None.
        order_flips: Number of pairs whose answer hung on which text came first, or None.
        label_flips: Number of rows whose answer depended on the order of the labels; None if they
            were shown in one order.
        cut: Number of answers whose explanation was cut at its budget.
        shortened: Number of answers to prompts that an input was cut for, as `truncate` asked.
        beyond: Number of rows that lie farther from those that a head was fitted on than any of
            them does from the rest.
    """

    metric: str
    statuses: Mapping[str, int]
    values: Mapping[str, int]
    confidence: float | None
    answer_mass: float | None
    order_flips: int | None
    label_flips: int | None
    cut: int
    shortened: int
    beyond: int = 0

    @property
    def rows(self) -> int:
        """Number of verdicts, of any status."""
        return sum(self.statuses.values())

    @property
    def ok(self) -> int:
        """Number of verdicts that have a value."""
        return self.statuses.get(Status.OK, 0)


class RunStore:
    """The verdicts of one run, in a folder that one process holds at a time.

    `run.json` has the configuration, `verdicts.db` every verdict as soon as it is saved, and
    `verdicts.jsonl` and `verdicts.parquet` are written when the run is finished. Use it as a
    context manager; `pending` and `save` may be called in two threads at once. All methods raise
    RunError if the folder cannot be used, the disk is full or a file is damaged; what was saved
    before stays.
    """

    def __init__(
        self, folder: Path, metrics: tuple[str, ...], db: sqlite3.Connection, held: ExitStack
    ) -> None:
        self.folder = folder
        self.metrics = metrics
        self._db = db
        self._held = held
        self._lock = Lock()
        self._tallies: tuple[Tally, ...] | None = None

    @classmethod
    def open(cls, folder: str | PathLike[str], config: Mapping[str, Any]) -> RunStore:
        """Open the folder of a run, or make it.

        Args:
            folder: The folder; absent, empty, or that of the same run.
            config: All that the verdicts depend on, as nested JSON values. `metrics` holds the
                metrics by name, in the order of the output. It is recorded until there is a
                verdict and compared from then on, but for what is under `info`.

        Raises:
            RunChanged: the folder holds a run with another `config`.
            RunLocked: another process has the folder open.
            RunError: the folder cannot be used, holds other files, or is damaged.
        """
        folder = Path(folder)
        database = folder / "verdicts.db"
        with as_run_errors(folder), ExitStack() as held:
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_foreign(folder)
            held.enter_context(locked(folder / "lock"))
            with as_run_errors(database):
                connection = sqlite3.connect(database, check_same_thread=False)
                db = held.enter_context(closing(connection))
                _prepare(db)
                [(started,)] = db.execute("SELECT EXISTS (SELECT * FROM verdicts)")
            keep_settings(folder / "run.json", config, started=bool(started))
            return cls(folder, tuple(config["metrics"]), db, held.pop_all())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files and let the next process in."""
        self._held.close()

    def check_places(self, rows: int) -> None:
        """Make sure that every verdict is of one of `rows` rows and of a metric of this run."""
        query = "SELECT DISTINCT position, metric FROM verdicts WHERE NOT (position BETWEEN 0 AND ?"
        query += f" AND metric IN ({', '.join('?' * len(self.metrics))})) LIMIT 1"
        with self._errors():
            stray = self._db.execute(query, (rows - 1, *self.metrics)).fetchone()
        if stray:
            raise RunError(
                f"damaged: it has a verdict of row {stray[0]} by the metric {stray[1]!r}, "
                "which this run does not have",
                path=self.folder / "verdicts.db",
                hint="restore the file, or choose a new folder",
            )

    def kept(self, *, retry_failed: bool = True) -> int:
        """Return how many verdicts need not be made again: those that are `ok`, or all."""
        tallies = self._kept_tallies()
        if tallies is not None:
            return sum(tally.ok if retry_failed else tally.rows for tally in tallies)
        return self._count("WHERE status = 'ok'" if retry_failed else "")

    def _count(self, which: str = "") -> int:
        with self._errors():
            return int(self._db.execute(f"SELECT count(*) FROM verdicts {which}").fetchone()[0])

    def pending(
        self, metric: str, rows: Iterable[tuple[int, str]], *, retry_failed: bool = True
    ) -> list[bool]:
        """Say of each row whether it still needs judging: it has no verdict yet, or a failed one.

        Args:
            metric: Name of the metric.
            rows: Place in the data, counted from any fixed number, and id of each row.
            retry_failed: Whether those with a failed verdict do.

        Raises:
            RunChanged: another id was saved for that place, so the data is not what it was.
        """
        query = "SELECT row_id, status FROM verdicts WHERE position = ? AND metric = ?"
        answers = []
        with self._lock, self._errors():
            for position, row_id in rows:
                saved = self._db.execute(query, (position, metric)).fetchone()
                if saved and saved[0] != row_id:
                    raise RunChanged(
                        f"row {position} of the data was {saved[0]!r} and is now {row_id!r}",
                        path=self.folder,
                        hint="choose a new folder, or go back to the old data",
                    )
                answers.append(saved is None or (retry_failed and saved[1] != Status.OK))
        return answers

    def save(self, items: Iterable[tuple[int, Verdict]]) -> None:
        """Save verdicts, all of them or none; each replaces an earlier one of its row and metric.

        Args:
            items: Place in the data, as in `pending`, and verdict of each row.
        """
        self._tallies = None
        with self._lock, self._errors(), self._db:
            if self.finished:  # its files would be taken for what it holds now
                for name in _OUTPUTS:
                    (self.folder / name).unlink(missing_ok=True)
            self._db.execute("UPDATE progress SET finished = 0")
            self._db.executemany(
                "INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?, ?)",
                (self._record(position, verdict) for position, verdict in items),
            )

    def verdicts(self) -> Generator[Verdict, None, None]:
        """Yield all verdicts in the order of the data, and of the metrics within a row."""
        yield from verdicts_in(self._db, self.folder / "verdicts.db", self.metrics.index)

    def _lines(self) -> Generator[str, None, None]:
        """Yield the JSON of all verdicts, as it was saved."""
        with self._errors():
            yield from _lines(self._db, self.metrics.index)

    def tallies(self) -> tuple[Tally, ...]:
        """Return what the verdicts are, metric by metric. Those of a finished run are kept."""
        if self._tallies is None:
            self._tallies = self._kept_tallies()
        if self._tallies is None:
            with self._errors():
                self._tallies = tuple(self._tally(metric) for metric in self.metrics)
        return self._tallies

    def _kept_tallies(self) -> tuple[Tally, ...] | None:
        query = "SELECT tallies FROM summary WHERE (SELECT finished FROM progress)"
        with self._errors():
            found = self._db.execute(query).fetchone()
        if found is None:
            return None
        try:
            tallies = tuple(Tally(**tally) for tally in json.loads(found[0]))
            whole = sum(tally.rows for tally in tallies) == self._count()
        except (ValueError, TypeError, AttributeError):  # damaged: they are counted anew
            return None
        return tallies if whole else None

    def _tally(self, metric: str) -> Tally:
        # Counted here: to group them, SQLite would sort all rows, in memory.
        counts = Counter(self._db.execute(_VALUES, (metric,)))
        statuses: Counter[str] = Counter()
        values: Counter[str] = Counter()
        for (status, value), number in counts.most_common():
            statuses[status] += number
            if value is not None:
                values[str(value)] += number
        sums = self._db.execute(_SUMS, (metric, Status.OK)).fetchone()
        return Tally(metric, dict(statuses.most_common()), dict(values), *sums)

    def bind(self, resolved: Mapping[str, Any]) -> None:
        """Record what the engine turned out to be; on a later start, make sure it is the same.

        Raises:
            RunChanged: an earlier start used another engine, precision or template.
        """
        with as_run_errors(self.folder):
            keep_resolved(self.folder / "run.json", resolved)

    @property
    def finished(self) -> bool:
        """Whether the output files were written since a verdict was last saved."""
        with self._errors():
            return bool(self._db.execute("SELECT finished FROM progress").fetchone()[0])

    def finish(self) -> None:
        """Write `verdicts.jsonl` and `verdicts.parquet`, unless they are there and up to date."""
        jsonl, parquet = (self.folder / name for name in _OUTPUTS)
        if self.finished and jsonl.exists() and parquet.exists():
            return
        # A read left open by a failed write would keep the database in use.
        with closing(self.verdicts()) as verdicts:
            write_parquet(verdicts, parquet)
        with closing(self._lines()) as lines:
            write_lines(lines, jsonl)
        tallies = json.dumps([asdict(tally) for tally in self.tallies()])
        with self._errors(), self._db:
            self._db.execute("UPDATE progress SET finished = 1")
            self._db.execute("DELETE FROM summary")
            self._db.execute("INSERT INTO summary VALUES (?)", (tallies,))

    def _record(self, position: int, verdict: Verdict) -> tuple[int, str, str, str, str]:
        if verdict.metric not in self.metrics:
            raise ValueError(f"{verdict.metric!r} is not a metric of this run")
        return position, verdict.metric, verdict.id, verdict.status, verdict.to_json()

    def _errors(self) -> AbstractContextManager[None]:
        return as_run_errors(self.folder / "verdicts.db")


def verdicts_in(
    db: sqlite3.Connection, path: Path, place: Callable[[str], int]
) -> Generator[Verdict, None, None]:
    """Yield the verdicts of a database, in the order of the data.

    Args:
        db: The database.
        path: What errors call it.
        place: Returns the place of a metric within a row.

    Raises:
        RunError: it is damaged.
    """
    with as_run_errors(path), closing(_lines(db, place)) as lines:
        for line in lines:
            try:
                verdict = read_line(line)
            except (ValueError, TypeError) as error:
                raise RunError(
                    f"damaged: a verdict cannot be read: {error}",
                    path=path,
                    hint="restore the file, or choose a new folder",
                ) from None
            yield verdict


def _lines(db: sqlite3.Connection, place: Callable[[str], int]) -> Generator[str, None, None]:
    query = "SELECT position, metric, verdict FROM verdicts ORDER BY position"
    for _, records in groupby(db.execute(query), key=itemgetter(0)):
        for _, _, verdict in sorted(records, key=lambda item: place(item[1])):
            yield verdict


def _refuse_foreign(folder: Path) -> None:
    try:
        names = {entry.name for entry in folder.iterdir()}
    except PermissionError as error:
        raise unreadable(folder, error) from error
    ours = names & {"run.json", "verdicts.db"}
    # A start that was killed at once leaves no more than these two.
    if not ours and names - {"lock", "run.json.partial"}:
        raise RunError(
            "the folder holds other files and no run", path=folder, hint="choose a new folder"
        )


def _prepare(db: sqlite3.Connection) -> None:
    # One process holds the folder, so SQLite needs no shared memory, which network disks lack.
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    # A killed process loses nothing; a power cut may lose the last chunks, never tear one.
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA temp_store = MEMORY")  # only the run folder may be writable
    db.executescript(_SCHEMA)
