"""A source of records: what every kind of data is to the rest of the project."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = tuple[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """Records that can be read as often as asked, one by one.

    Attributes:
        name: What errors call it: a path, or words such as `standard input`.
        records: Reads anew and yields where each record stands, counted from 1, and its fields.
            The position is the line on which the record begins, or the number of the row. In CSV,
            Parquet and tables in memory every record has every column; in JSON it has the keys
            that were written. A missing value is None.
        left_out: Returns the columns that are not read, since they hold bytes.
        path: The file or folder, if it is one.
        form: How the bytes of a single file are read; None if it is something else.
    """

    name: str
    records: Callable[[], Iterator[Record]]
    left_out: Callable[[], tuple[str, ...]] = tuple
    path: Path | None = None
    form: str | None = None
