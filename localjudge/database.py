"""What may go wrong with an SQLite file, as errors of ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localjudge.errors import RunError
from localjudge.outputs import unwritable

_RESTORE = "restore the file, or choose a new folder"


@contextmanager
def as_run_errors(path: Path, if_damaged: str = _RESTORE) -> Iterator[None]:
    """Raise RunError, naming `path`, for errors of SQLite and of the system in the block."""
    try:
        yield
    except OSError as error:
        raise unwritable(error.filename or path, error) from error
    except UnicodeDecodeError as error:  # SQLite tells of damage in the damaged words themselves
        raise RunError(f"damaged: {error}", path=path, hint=if_damaged) from error
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte; the rest is detail
        problem, hint = f"cannot be used: {error}", "check the disk, or choose another folder"
        if code == sqlite3.SQLITE_FULL:
            problem = f"cannot be written: {error}"
            hint = "free some space on the disk and run the same command again"
        elif code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            problem, hint = f"damaged: {error}", if_damaged
        raise RunError(problem, path=path, hint=hint) from error
