"""The database of a run, read without touching it, while another process may write to it."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from shutil import copyfile

from localjudge.database import as_run_errors
from localjudge.errors import RunLocked

_TRIES = 20
_TICK = 0.02  # seconds; what is written later than that has another time of change
_WAL_HEADER = 32  # bytes; they change when SQLite begins the log anew


@contextmanager
def snapshot(database: Path) -> Iterator[sqlite3.Connection]:
    """Open a copy of an SQLite file in WAL mode, as it was at one moment, in a temporary folder.

    Whoever writes holds the file for itself, and SQLite would not let anybody read. But the file
    changes only when the log is moved into it: if it stayed as it was while both were copied, and
    the log was not begun anew, the two belong together. Of the log, SQLite takes what is whole.

    Raises:
        RunLocked: the file changes faster than it can be copied.
        RunError: it cannot be read, copied or is damaged.
    """
    with as_run_errors(database), ExitStack() as held:
        with tempfile.TemporaryDirectory(prefix="localjudge-") as folder:
            copy = Path(folder) / "copy.db"
            _copy(database, copy)
            db = held.enter_context(closing(sqlite3.connect(copy)))
            db.execute("PRAGMA temp_store = MEMORY")
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # now its files are open
        yield db  # they have no names any more, so nothing is left behind, whatever ends this


def _copy(database: Path, copy: Path) -> None:
    log = database.with_name(f"{database.name}-wal")
    for attempt in range(_TRIES):
        time.sleep(_TICK * attempt)
        before = _state(database, log)
        time.sleep(_TICK)
        if _state(database, log) != before:
            continue
        copied = copy.with_name(f"{copy.name}-wal")
        if before[2] is None:
            copied.unlink(missing_ok=True)
        else:
            try:
                copyfile(log, copied)
            except FileNotFoundError:
                continue
        copyfile(database, copy)
        if _state(database, log) == before:
            return
    raise RunLocked(
        "is written to faster than it can be read",
        path=database.parent,
        hint="`localjudge status` says how far the run is; look at it when it has ended",
    )


def _state(database: Path, log: Path) -> tuple[int, int, bytes | None]:
    facts = database.stat()
    try:
        with log.open("rb") as file:
            return facts.st_size, facts.st_mtime_ns, file.read(_WAL_HEADER)
    except FileNotFoundError:
        return facts.st_size, facts.st_mtime_ns, None
