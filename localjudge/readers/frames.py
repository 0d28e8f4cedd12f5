"""Rows in memory: a dataset of Hugging Face, a data frame of pandas, or a list of dicts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from localjudge.errors import ConfigError, DataError
from localjudge.readers.arrow import (
    BATCH_ROWS,
    byte_columns,
    column_values,
    plain,
    read_batches,
    text_columns,
)
from localjudge.readers.source import Record, Source

if TYPE_CHECKING:
    from datasets import Dataset
    from pandas import DataFrame, Series

_FRAME = "the data frame"
_LIST = "the list of rows"


def memory_source(data: object, split: str | None = None) -> Source | None:
    """Return the rows of a `datasets.Dataset`, a split of a `DatasetDict`, or a pandas frame.

    Args:
        data: What holds the rows.
        split: The split; not needed where there is one only.

    Returns:
        None if `data` is nothing of the kind.

    Raises:
        ConfigError: there is no such split, or it must be said which one.
        DataError: columns have no names, or two have one name, or there are only bytes in them.
    """
    # Whoever has such an object has imported its library.
    datasets, pandas = sys.modules.get("datasets"), sys.modules.get("pandas")
    if datasets is not None and isinstance(data, datasets.DatasetDict):
        chosen = choose_split(list(data), split, "the dataset")
        return dataset_source(data[chosen], f"split {chosen} of the dataset")
    if datasets is not None and isinstance(data, datasets.Dataset):
        _refuse_split(split)
        return dataset_source(data, "the dataset")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        _refuse_split(split)
        _check_names(data)
        return Source(_FRAME, lambda: _read_frame(data))
    return None


def list_source(data: object, split: str | None = None) -> Source | None:
    """Return the rows of what yields dicts of column to value; None if `data` is no such thing.

    Raises:
        ConfigError: a split is asked for.
        DataError: something else than a dict is among them, or a column's name is not text.
    """
    if not isinstance(data, Iterable) or isinstance(data, str | bytes | Mapping):
        return None
    _refuse_split(split)
    rows = list(data)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise DataError(
                f"is of type {type(row).__name__}, not a dict of column to value",
                path=_LIST,
                line=number,
            )
        for name in row:
            if not isinstance(name, str):
                raise DataError(f"a column is named {name!r}", path=_LIST, line=number)

    def records() -> Iterator[Record]:
        for number, row in enumerate(rows, 1):
            yield number, {name: _cell(row[name], _LIST, number, name) for name in row}

    return Source(_LIST, records)


def as_rows(rows: Iterable[Any]) -> Iterable[Any]:
    """Return what yields the rows one by one as dicts, where `rows` itself may be a table."""
    source = memory_source(rows)
    return rows if source is None else (fields for _, fields in source.records())


def dataset_source(dataset: Dataset, name: str) -> Source:
    """Return the rows of a dataset; columns that hold bytes, such as images, are left out."""
    schema = dataset.features.arrow_schema
    names = text_columns(schema, name)

    def records() -> Iterator[Record]:
        # As Arrow has them: in its own format, the dataset would open images and sounds.
        batches = dataset.select_columns(names).with_format("arrow").iter(BATCH_ROWS)
        yield from read_batches(batches, names, name)

    return Source(name, records, lambda: byte_columns(schema))


def choose_split(splits: list[str], wanted: str | None, name: str) -> str:
    """Return the split that is `wanted`, or the only one there is.

    Raises:
        ConfigError: there is no such split, or it must be said which one.
    """
    if wanted is None and len(splits) == 1:
        return splits[0]
    if wanted in splits:
        return str(wanted)
    problem = f"{name} has no split {wanted!r}" if wanted else f"{name} has several splits"
    hint = f"name one of them: {', '.join(splits)}" if splits else "leave the split out"
    raise ConfigError(problem, field="split", hint=hint)


def _refuse_split(split: str | None) -> None:
    if split is not None:
        raise ConfigError("these rows have no splits", field="split")


def _check_names(frame: DataFrame) -> None:
    names = list(frame.columns)
    for name in names:
        if not isinstance(name, str):
            raise DataError(
                f"a column is named {name!r}, which is not text",
                path=_FRAME,
                hint="name the columns: frame.columns = [...]",
            )
        if names.count(name) > 1:
            raise DataError("two columns have this name", path=_FRAME, field=name)


def _read_frame(frame: DataFrame) -> Iterator[Record]:
    names = list(frame.columns)
    for start in range(0, len(frame), BATCH_ROWS):
        batch = frame.iloc[start : start + BATCH_ROWS]
        columns = [_cells(batch[name], start + 1) for name in names]
        for row, values in enumerate(zip(*columns, strict=True), start + 1):
            yield row, dict(zip(names, values, strict=True))


def _cells(column: Series, start: int) -> Iterator[Any]:
    """Yield the values of a column; `start` is the number of the first row."""
    import pandas

    if isinstance(column.dtype, pandas.ArrowDtype):
        # As Parquet is read: pandas fails at a date that Python cannot hold.
        arrow = column.array.__arrow_array__()
        yield from column_values(arrow, str(column.name), _FRAME, start)
        return
    for row, value in enumerate(column, start):
        yield _cell(value, _FRAME, row, str(column.name))


def _cell(value: Any, source: str, row: int, column: str) -> Any:
    try:
        return _python(value)
    except RecursionError:
        raise DataError(
            "is nested too deeply, or holds itself",
            path=source,
            line=row,
            field=column,
            hint="leave the column out, or turn it into text",
        ) from None


def _python(value: Any) -> Any:
    """Return a value of numpy or pandas as Python's own, as `plain` takes it."""
    if value is None or type(value) in (str, int, bool):
        return value
    import numpy
    import pandas

    if value is pandas.NA or value is pandas.NaT:
        return None
    if isinstance(value, numpy.datetime64):  # numpy would make a number of it
        return _python(pandas.Timestamp(value))
    if isinstance(value, numpy.timedelta64):
        return _python(pandas.Timedelta(value))
    if isinstance(value, numpy.ndarray) and value.dtype.kind in "mM":
        return _python([*value] if value.ndim else value[()])
    if isinstance(value, numpy.generic | numpy.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_python(item) for item in value]
    if isinstance(value, dict):
        return {key: _python(item) for key, item in value.items()}
    return plain(value)
