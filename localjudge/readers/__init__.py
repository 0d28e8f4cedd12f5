"""Data files to records: one function for each format, and the one place that chooses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from localjudge.errors import DataError
from localjudge.readers.delimited import read_csv, read_tsv
from localjudge.readers.jsonl import read_jsonl
from localjudge.readers.parquet import read_parquet

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
    if path.is_dir():
        raise DataError("is a folder, not a data file", path=path, hint=_formats())
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"the ending {path.suffix!r} is not that of a known format", path=path, hint=_formats()
        )
    try:
        yield from reader(path)
    except OSError as error:
        raise DataError(
            f"cannot be read: {error.strerror or error}",
            path=path,
            hint="check the path, and that this user may read it",
        ) from error


def _formats() -> str:
    return f"the formats that are read: {', '.join(READERS)}"
