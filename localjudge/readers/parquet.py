"""Parquet files."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from localjudge.errors import DataError

if TYPE_CHECKING:
    from pyarrow import Array, DataType
    from pyarrow.parquet import ParquetFile


def read_parquet(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the row number, from 1, and the fields of each row.

    Text, integers, booleans, lists and structs stay what they are, and a struct keeps the keys
    that are null in it. NaN and infinite numbers are missing. Dates and times become ISO 8601
    text; decimals, durations and UUIDs the text that Python prints for them. A column that holds
    bytes, alone or inside its values, is left out: see `byte_columns`.

    Raises:
        DataError: the file is damaged or names a column twice, or a value has no text form.
    """
    row = 0
    with _opened(path) as file:
        names = file.schema_arrow.names
        for name, times in Counter(names).items():
            if times > 1:
                raise DataError("the file names this column twice", path=path, field=name)
        without = set(byte_columns(path))
        names = [name for name in names if name not in without]
        if without and not names:
            raise DataError(
                "every column holds bytes, which have no text form",
                path=path,
                hint="turn those that are text into text",
            )
        for batch in file.iter_batches(batch_size=256, columns=names):
            columns = [_values(batch.column(name), path, row + 1, name) for name in names]
            for values in zip(*columns, strict=True):
                row += 1
                fields = zip(names, values, strict=True)
                yield row, {name: _plain(value, path, row, name) for name, value in fields}


def byte_columns(path: Path) -> tuple[str, ...]:
    """Return the columns that hold bytes, alone or inside their values.

    Raises:
        DataError: the file is damaged.
    """
    with _opened(path) as file:
        return tuple(field.name for field in file.schema_arrow if _has_bytes(field.type))


def _has_bytes(kind: DataType) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        return _has_bytes(kind.value_type)
    if any(_has_bytes(kind.field(place).type) for place in range(kind.num_fields)):
        return True
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


@contextmanager
def _opened(path: Path) -> Iterator[ParquetFile]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            yield file
    except pa.ArrowException as error:
        raise DataError(
            f"not a readable Parquet file: {error}",
            path=path,
            hint="write the file again, or give it as .jsonl or .csv",
        ) from error


def _values(column: Array, path: Path, row: int, name: str) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"not readable, in this row or one of the {len(column)} from it on: {error}",
            path=path,
            line=row,
            field=name,
            hint="drop the column, or turn it into text",
        ) from error
    return values


def _plain(value: Any, path: Path, row: int, column: str) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item, path, row, column) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, path, row, column) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal | datetime.timedelta | UUID):
        return str(value)
    raise DataError(
        f"a value of type {type(value).__name__} has no text form",
        path=path,
        line=row,
        field=column,
        hint="drop the column, or turn it into text",
    )
