"""Arrow columns to plain values: what Parquet files and datasets hold."""

from __future__ import annotations

import datetime
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from localjudge.errors import DataError

if TYPE_CHECKING:
    from pyarrow import Array, ChunkedArray, DataType, RecordBatch, Schema, Table

BATCH_ROWS = 64  # few, for a row may hold a long text


def read_batches(
    batches: Iterable[RecordBatch | Table], names: Sequence[str], source: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the row number, from 1, and the fields of each row of `batches`.

    Text, integers, booleans, lists and structs stay what they are, and a struct keeps the keys
    that are null in it. NaN and infinite numbers are missing. Dates and times become ISO 8601
    text; decimals, durations and UUIDs the text that Python prints for them; the type JSON is
    decoded. What has no such form, such as a date beyond the year 9999, stays as Arrow has it: no
    prompt can show it, which costs the rows that need it, and no others.

    Args:
        batches: The rows.
        names: The columns to read.
        source: What errors call the place that they come from.

    Raises:
        DataError: a text is not UTF-8, or the type JSON holds something else.
    """
    row = 0
    for batch in batches:
        columns = [column_values(batch.column(name), name, source, row + 1) for name in names]
        for values in zip(*columns, strict=True):
            row += 1
            yield row, dict(zip(names, values, strict=True))


def byte_columns(schema: Schema) -> tuple[str, ...]:
    """Return the columns that hold bytes, alone or inside their values."""
    return tuple(field.name for field in schema if _has_bytes(field.type))


def text_columns(schema: Schema, source: str) -> list[str]:
    """Return the other columns.

    Raises:
        DataError: there is none, or two columns have one name.
    """
    names: list[str] = schema.names
    for name, times in Counter(names).items():
        if times > 1:
            raise DataError("the file names this column twice", path=source, field=name)
    without = byte_columns(schema)
    if without and len(without) == len(names):
        raise DataError(
            "every column holds bytes, which have no text form",
            path=source,
            hint="turn those that are text into text",
        )
    return [name for name in names if name not in without]


def plain(value: Any) -> Any:
    """Return a value as `read_batches` gives it; one of an unknown type is left as it is."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Decimal | datetime.timedelta | UUID):
        return str(value)
    return value


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


def carried(value: Any) -> Any:
    """Return a value as JSON can hold it, also one that `read_batches` leaves as Arrow has it.

    Within lists and structs, only what Python cannot hold becomes Arrow's own text for it. A struct
    that names a key twice becomes a list of keys and values.

    Raises:
        TypeError: it is of a type that is neither JSON's nor Arrow's.
    """
    import pyarrow as pa

    if value is None or isinstance(value, str | int | float | list | dict):
        return value
    if not isinstance(value, pa.Scalar):
        raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")
    if not value.is_valid:
        return None
    if isinstance(value, pa.StructScalar):
        items = [(key, carried(item)) for key, item in value.items()]
        return dict(items) if len(dict(items)) == len(items) else [list(item) for item in items]
    if isinstance(value, pa.DictionaryScalar):
        return carried(value.value)
    if isinstance(value, pa.ListScalar):  # a map too: its items are structs of key and value
        return [carried(item) for item in value.values]
    known = plain(_value(value))
    if not isinstance(known, pa.Scalar):
        return carried(known)
    try:
        return value.cast(pa.string()).as_py()
    except pa.ArrowException:  # a time in a zone that nobody knows
        return str(value.value)


def column_values(column: Array | ChunkedArray, name: str, source: str, row: int) -> list[Any]:
    """Return the values of a column, as `read_batches` does; `row` is the number of the first."""
    try:
        try:
            values = column.to_pylist()
        except UnicodeDecodeError:
            raise
        except (ValueError, OverflowError):
            values = [_value(scalar) for scalar in column]
        if str(column.type) == "time64[ns]":  # Python's times end at the microsecond
            texts = column.cast("string").to_pylist()
            values = [
                value if text is None or text.endswith("000") else text
                for text, value in zip(texts, values, strict=True)
            ]
        if _has_json(column.type):
            values = [_decoded(value, column.type) for value in values]
    except ValueError as error:
        raise DataError(
            f"damaged, in this row or one of the {len(column)} from it on: {error}",
            path=source,
            line=row,
            field=name,
            hint="write the file again, or give it as .jsonl or .csv",
        ) from error
    return [plain(value) for value in values]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError):
        return scalar


def _has_json(kind: DataType) -> bool:
    from pyarrow import JsonType

    parts = (kind.field(place).type for place in range(kind.num_fields))
    return isinstance(kind, JsonType) or any(map(_has_json, parts))


def _decoded(value: Any, kind: DataType) -> Any:
    """Decode what is of the type JSON inside a value of the type `kind`."""
    from pyarrow import JsonType

    if isinstance(kind, JsonType) and isinstance(value, str):
        return json.loads(value)
    if isinstance(value, dict):
        kinds = {kind.field(place).name: kind.field(place).type for place in range(kind.num_fields)}
        return {key: _decoded(item, kinds[key]) for key, item in value.items()}
    if isinstance(value, list):
        return [_decoded(item, kind.value_type) for item in value]
    return value
