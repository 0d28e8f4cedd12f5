"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from localjudge.errors import DataError
from localjudge.readers.arrow import BATCH_ROWS, byte_columns, read_batches, text_columns
from localjudge.readers.files import DataFile

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_BUFFER = 1 << 18  # bytes of each column that are read at once; otherwise a whole row group is


def read_parquet(file: DataFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the row number, from 1, and the fields of each row: see `read_batches`.

    A column that holds bytes, alone or inside its values, is left out.

    Raises:
        DataError: the file is damaged or names a column twice.
    """
    with _opened(file) as parquet:
        names = text_columns(parquet.schema_arrow, str(file.path))
        batches = parquet.iter_batches(batch_size=BATCH_ROWS, columns=names)
        yield from read_batches(batches, names, str(file.path))


def left_out(file: DataFile) -> tuple[str, ...]:
    """Return the columns that `read_parquet` leaves out.

    Raises:
        DataError: the file is damaged.
    """
    with _opened(file) as parquet:
        return byte_columns(parquet.schema_arrow)


@contextmanager
def _opened(file: DataFile) -> Iterator[ParquetFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with (
            file.open() as stream,
            pq.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False) as parquet,
        ):
            yield parquet
    except pa.ArrowException as error:
        raise DataError(
            f"not a readable Parquet file: {error}",
            path=file.path,
            hint="write the file again, or give it as .jsonl or .csv",
        ) from error
