"""Data to records: one function for each format, and the one place that chooses it."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from localjudge.errors import ConfigError, DataError
from localjudge.readers.delimited import read_csv, read_tsv
from localjudge.readers.files import COMPRESSIONS, DataFile, Spool
from localjudge.readers.folders import folder_source
from localjudge.readers.frames import as_rows, memory_source
from localjudge.readers.json_array import read_json
from localjudge.readers.jsonl import read_jsonl
from localjudge.readers.parquet import left_out, read_parquet
from localjudge.readers.source import Record, Source

__all__ = ["READERS", "STDIN", "Record", "Source", "as_rows", "open_source"]

STDIN = "-"
Reader = Callable[[DataFile], Iterator[Record]]
READERS: dict[str, Reader] = {
    "jsonl": read_jsonl,
    "ndjson": read_jsonl,
    "json": read_json,
    "csv": read_csv,
    "tsv": read_tsv,
    "parquet": read_parquet,
}


def open_source(data: Any, *, data_format: str | None = None, split: str | None = None) -> Source:
    """Return the records of whatever holds rows.

    Args:
        data: A data file, a dataset folder, `-` for standard input, a `datasets.Dataset` or
            `DatasetDict`, or a pandas data frame. Standard input is read to its end at once, into
            a temporary file.
        data_format: Format of a file, or of standard input: an entry of `READERS`, and `.gz` or
            `.zst` behind it if it is compressed. By default what the ending of the name says,
            and `jsonl` for standard input.
        split: The split of a dataset folder or a `DatasetDict`; not needed if it has one only.

    Raises:
        ConfigError: an option is wrong, or has no meaning for this data.
        DataError: it cannot be read, or nothing says what its format is.
    """
    if not isinstance(data, str | PathLike):
        if data_format is not None:
            raise ConfigError("only a file has a format", field="data_format")
        source = memory_source(data, split)
        if source is None:
            raise DataError(
                f"rows cannot be read from {type(data).__name__}",
                hint="give a path, a datasets.Dataset or a pandas.DataFrame",
            )
        return source
    path = Path(data)
    mode = 0 if data == STDIN else _mode(path)
    if stat.S_ISDIR(mode):
        if data_format is not None:
            raise ConfigError("a folder has files of its own formats", field="data_format")
        with _as_data_errors(path):
            return folder_source(path, split, _file_source)
    if split is not None:
        raise ConfigError("only a dataset folder has splits", path=path, field="split")
    if data == STDIN:
        return _standard_input("jsonl" if data_format is None else data_format)
    return _file_source(path, data_format)


def _mode(path: Path) -> int:
    try:
        with _as_data_errors(path):
            return path.stat().st_mode
    except ValueError as error:  # a NUL in the name
        raise DataError(f"is no path: {error}", path=path) from None


def _standard_input(data_format: str) -> Source:
    path = Path("standard input")
    reader, compression = _given(data_format)
    if sys.stdin is None:
        raise DataError("is closed", path=path, hint="give a file, or pipe the rows in")
    return _source(DataFile(path, compression, Spool(sys.stdin.buffer, path)), reader)


def _file_source(path: Path, data_format: str | None = None) -> Source:
    # A pipe can be read once only, and a run reads its data more often.
    if not stat.S_ISREG(_mode(path)):
        hint = "give - as the data and pipe the rows in, or save them as a file first"
        raise DataError("is a pipe or a device, not a file", path=path, hint=hint)
    reader, compression = _told_by_name(path) if data_format is None else _given(data_format)
    return _source(DataFile(path, compression), reader)


def _told_by_name(path: Path) -> tuple[Reader, str | None]:
    endings = path.name.lower().split(".")[1:]
    known = _format(".".join(endings[-2:])) or _format(".".join(endings[-1:]))
    if known is None:
        problem = f"the ending {path.suffix!r} is not that of a known format"
        raise DataError(problem, path=path, hint=f"{_formats()}; or say the format (data_format)")
    return known


def _given(data_format: str) -> tuple[Reader, str | None]:
    known = _format(data_format.lower().removeprefix("."))
    if known is None:
        problem = f"{data_format!r} is not a known format"
        raise ConfigError(problem, field="data_format", hint=_formats())
    return known


def _format(name: str) -> tuple[Reader, str | None] | None:
    """Return the reader and the compression of `csv` or `csv.gz`, or None if it is unknown."""
    name, _, packed = name.partition(".")
    reader = READERS.get(name)
    if reader is None or not packed:
        return None if reader is None else (reader, None)
    # Parquet is compressed inside; its end must be read first.
    known = packed in COMPRESSIONS and reader is not read_parquet
    return (reader, COMPRESSIONS[packed]) if known else None


def _formats() -> str:
    packed = ", ".join(f".{name}" for name in COMPRESSIONS)
    endings = ", ".join(f".{name}" for name in READERS)
    return f"the formats that are read: {endings}, and all but Parquet with {packed} behind it"


def _source(file: DataFile, reader: Reader) -> Source:
    def records() -> Iterator[Record]:
        with _as_data_errors(file.path):
            yield from reader(file)

    def without() -> tuple[str, ...]:
        with _as_data_errors(file.path):
            return left_out(file) if reader is read_parquet else ()

    if file.spool:
        return Source(str(file.path), records, without)
    form = f"{reader.__name__} {file.compression}"
    return Source(str(file.path), records, without, file.path, form)


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
