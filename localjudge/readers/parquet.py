"""Parquet files."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from localjudge.errors import DataError


def read_parquet(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the row number, from 1, and the fields of each row.

    Text, integers, booleans, lists and structs stay what they are, and a struct keeps the keys
    that are null in it. NaN and infinite numbers are missing. Dates and times become ISO 8601
    text; decimals, durations and UUIDs the text that Python prints for them.

    Raises:
        DataError: the file is damaged or names a column twice, or a value is of a type that has no
            text form, such as bytes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = 0
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            for name in names:
                if names.count(name) > 1:
                    raise DataError("the file names this column twice", path=path, field=name)
            for batch in file.iter_batches(batch_size=256):
                for fields in batch.to_pylist():
                    row += 1
                    yield row, {name: _plain(fields[name], path, row, name) for name in names}
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(
            f"not a readable Parquet file: {error}",
            path=path,
            hint="write the file again, or give it as .jsonl or .csv",
        ) from error


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
