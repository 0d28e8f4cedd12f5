"""Data to records: one function for each format, and the one place that chooses it."""

from __future__ import annotations

import stat
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from localjudge.errors import ConfigError, DataError
from localjudge.readers.delimited import read_csv, read_tsv
from localjudge.readers.files import COMPRESSIONS, DataFile, Spool
from localjudge.readers.folders import folder_source
from localjudge.readers.frames import as_rows, list_source, memory_source
from localjudge.readers.json_array import read_json
from localjudge.readers.jsonl import read_jsonl
from localjudge.readers.parquet import left_out, read_parquet
from localjudge.readers.source import Record, Source

__all__ = ["READERS", "STDIN", "Record", "Source", "as_rows", "open_source"]

STDIN = "-"
_START = 1 << 16  # bytes that are looked at
_MARKS = {b"PAR1": "parquet", b"\x1f\x8b": "jsonl.gz (or csv.gz)", b"\x28\xb5\x2f\xfd": "jsonl.zst"}
_PACKED_PARQUET = "a Parquet file in an archive is not read: its end must be read first"
_UNPACK = "unpack it, and give the .parquet file: Parquet is compressed inside already"
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
            `DatasetDict`, a pandas data frame, or what yields dicts of column to value. Standard
            input is read to its end at once, into a temporary file; what yields dicts, into memory.
        data_format: Format of a file, or of standard input: an entry of `READERS`, and `.gz` or
            `.zst` behind it if it is compressed. By default what the ending of the name says,
            and `jsonl` for standard input. Of a folder with files of several formats, which of
            them are read.
        split: The split of a dataset folder or a `DatasetDict`; not needed if it has one only.

    Raises:
        ConfigError: an option is wrong, or has no meaning for this data.
        DataError: it cannot be read, or nothing says what its format is.
    """
    if not isinstance(data, str | PathLike):
        if data_format is not None:
            raise ConfigError("only a file has a format", field="data_format")
        source = memory_source(data, split) or list_source(data, split)
        if source is None:
            raise DataError(
                f"rows cannot be read from {type(data).__name__}",
                hint="give a path, a datasets.Dataset, a pandas.DataFrame or a list of dicts",
            )
        return source
    path = Path(data)
    mode = 0 if data == STDIN else _mode(path)
    if stat.S_ISDIR(mode):
        wanted = None if data_format is None else _kind(_given(data_format))
        with _as_data_errors(path):
            return folder_source(path, split, _file_source, lambda file: _kind(_of(file)), wanted)
    if split is not None:
        raise ConfigError("only a dataset folder has splits", path=path, field="split")
    if data == STDIN:
        return _standard_input(data_format)
    return _file_source(path, data_format)


def _mode(path: Path) -> int:
    try:
        with _as_data_errors(path):
            return path.stat().st_mode
    except ValueError as error:  # a NUL in the name
        raise DataError(f"is no path: {error}", path=path) from None


def _standard_input(data_format: str | None) -> Source:
    path = Path("standard input")
    reader, compression = _given("jsonl" if data_format is None else data_format)
    if sys.stdin is None:
        raise DataError("is closed", path=path, hint="give a file, or pipe the rows in")
    spool = Spool(sys.stdin.buffer, path)
    likely = _likely_format(spool.read_at(0, _START))
    if data_format is None and likely is not None:
        raise DataError(
            "does not begin like JSON Lines, which it is taken for",
            path=path,
            hint=f"say the format; it looks like --data-format {likely}",
        )
    return _source(DataFile(path, compression, spool), reader)


def _likely_format(start: bytes) -> str | None:
    """Say what bytes that are no JSON Lines are likely to be; None where that is not clear."""
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            return name
    text = start.removeprefix(BOM_UTF8).lstrip()
    if text.startswith(b"["):
        return "json"
    line = text.split(b"\n")[0].rstrip()
    if not line or text.startswith(b"{") or b"\0" in line:
        return None
    return "tsv" if b"\t" in line else "csv"


def _file_source(path: Path, data_format: str | None = None) -> Source:
    # A pipe can be read once only, and a run reads its data more often.
    if not stat.S_ISREG(_mode(path)):
        hint = "give - as the data and pipe the rows in, or save them as a file first"
        raise DataError("is a pipe or a device, not a file", path=path, hint=hint)
    reader, compression = _told_by_name(path) if data_format is None else _given(data_format)
    return _source(DataFile(path, compression), reader)


def _told_by_name(path: Path) -> tuple[Reader, str | None]:
    endings = path.name.lower().split(".")[1:]
    known = _of(path)
    if known is None and endings[-2:-1] == ["parquet"] and endings[-1] in COMPRESSIONS:
        raise DataError(_PACKED_PARQUET, path=path, hint=_UNPACK)
    if known is None:
        problem = f"the ending {path.suffix!r} is not that of a known format"
        raise DataError(problem, path=path, hint=f"{_formats()}; or say the format (data_format)")
    return known


def _kind(known: tuple[Reader, str | None] | None) -> str | None:
    """Return the name of a format, whatever it is compressed by."""
    return None if known is None else known[0].__name__.removeprefix("read_")


def _of(path: Path) -> tuple[Reader, str | None] | None:
    endings = path.name.lower().split(".")[1:]
    return _format(".".join(endings[-2:])) or _format(".".join(endings[-1:]))


def _given(data_format: str) -> tuple[Reader, str | None]:
    name = data_format.lower().removeprefix(".")
    known = _format(name)
    if known is None and name.startswith("parquet."):
        raise ConfigError(_PACKED_PARQUET, field="data_format", hint=_UNPACK)
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
