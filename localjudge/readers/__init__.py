"""Data files to records: one function for each format, and the one place that chooses it."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localjudge.errors import DataError
from localjudge.readers.delimited import read_csv, read_tsv
from localjudge.readers.jsonl import read_jsonl
from localjudge.readers.parquet import byte_columns, read_parquet

Record = tuple[int, dict[str, Any]]

READERS: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".parquet": read_parquet,
}


def read(path: Path) -> Iterator[Record]:
    """Yield each record of a data file: where it stands, counted from 1, and its fields.

    The position is the line on which the record begins, or the row of a Parquet file. In CSV and
    Parquet every record has every column; in JSON Lines it has the keys that were written. A
    missing value is None.

    Raises:
        DataError: the file cannot be read, or is not what its name says.
    """
    with _as_data_errors(path):
        reader = _reader(path)
        yield from reader(path)


def left_out(path: Path) -> tuple[str, ...]:
    """Return the columns of a data file that `read` leaves out, since they hold bytes."""
    with _as_data_errors(path):
        return byte_columns(path) if _reader(path) is read_parquet else ()


def _reader(path: Path) -> Callable[[Path], Iterator[Record]]:
    try:
        mode = path.stat().st_mode
    except ValueError as error:  # a NUL in the name
        raise DataError(f"is no path: {error}", path=path) from None
    if stat.S_ISDIR(mode):
        raise DataError("is a folder, not a data file", path=path, hint=_formats())
    # A pipe can be read once only, and a run reads its data more often.
    if not stat.S_ISREG(mode):
        hint = "save the rows as a file first"
        raise DataError("is a pipe or a device, not a file", path=path, hint=hint)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"the ending {path.suffix!r} is not that of a known format", path=path, hint=_formats()
        )
    return reader


@contextmanager
def _as_data_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror or error}",
            path=path,
            hint="check the path, and that this user may read it",
        ) from error


def _formats() -> str:
    return f"the formats that are read: {', '.join(READERS)}"
