"""Rows from a data file, and the check of them before a run."""

from __future__ import annotations

import difflib
import hashlib
import json
import shlex
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from localjudge.errors import ConfigError, DataError
from localjudge.paths import is_reachable, steps
from localjudge.readers import Source, open_source
from localjudge.records import Row, as_id


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of some data. Each iteration reads them anew, row by row.

    Attributes:
        source: The data.
        columns: Names of the columns; of JSON, those of the first row.
        id_column: The column that holds the ids; None where a row's number, from 1, is its id.
        limit: How many rows are read, from the first; None for all.
    """

    source: Source
    columns: tuple[str, ...]
    id_column: str | None = None
    limit: int | None = None

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows.

        Raises:
            DataError: a row cannot be read, or has no usable id.
        """
        for number, (line, fields) in enumerate(islice(self.source.records(), self.limit), 1):
            yield Row(self._id(number, line, fields), fields, line)

    def _id(self, number: int, line: int, fields: dict[str, Any]) -> str:
        value = fields.get(self.id_column or "id")
        if self.id_column is None and value is None:
            return str(number)
        try:
            if self.id_column is None:
                raise ValueError("the row has an id, but the first row has none")
            return as_id(value)
        except ValueError as error:
            raise DataError(
                str(error),
                path=self.source.name,
                line=line,
                field=self.id_column or "id",
                hint="give every row an id, or name another column that holds one",
            ) from None


def open_table(
    data: Any,
    *,
    data_format: str | None = None,
    split: str | None = None,
    id_column: str | None = None,
    limit: int | None = None,
) -> Table:
    """Open a data file, a dataset folder, a table in memory, or standard input.

    Args:
        data: What holds the rows; `data_format` and `split` say more of it: see `open_source`.
        data_format: By default what the ending of the file's name says.
        split: Not needed if there is one only.
        id_column: The column that holds the ids: text or integers, unique. By default `id` if
            there is such a column, otherwise the row's number from 1.
        limit: Read only so many rows, from the first.

    Raises:
        ConfigError: `limit` is not positive, or another option is wrong.
        DataError: the data cannot be read or has no rows, or `id_column` is not in it.
    """
    if limit is not None:
        if limit < 1:
            raise ConfigError(f"{limit} rows leave nothing to judge", field="limit")
        limit = min(limit, sys.maxsize)
    source = open_source(data, data_format=data_format, split=split)
    _, first = next(source.records(), (0, None))
    if first is None:
        raise _empty(source)
    columns = tuple(first)
    if id_column is None and ("id" in columns or "id" in source.left_out()):
        id_column = "id"
    if id_column is not None and id_column not in columns:
        raise _absent([id_column], columns, source)
    return Table(source, columns, id_column, limit)


def _empty(source: Source) -> DataError:
    return DataError("has no rows", path=source.name, hint="check that it is the right file")


@dataclass(frozen=True, slots=True)
class TableCheck:
    """What one pass over a table found.

    Attributes:
        rows: Number of rows.
        digest: SHA-256, in hex, over the ids and fields of all rows in their order.
        marks: A hash of each row, good in this process only.
    """

    rows: int
    digest: str
    marks: array[int] = field(repr=False)


def check_table(table: Table, required: Iterable[str] = ()) -> TableCheck:
    """Read all of `table` once and make sure that it can be judged. Memory: 16 bytes a row.

    Args:
        table: The table.
        required: Columns that at least one row must have, or paths into one; a mapping also says
            which input of a metric each is for.

    Raises:
        DataError: a row cannot be read, there is none, two rows have one id, or a required column
            is in no row.
    """
    sha256 = hashlib.sha256()
    columns = dict.fromkeys(table.columns)
    ids, marks = array("q"), array("q")
    for row, text in _encoded(table):
        ids.append(hash(row.id))
        marks.append(hash(text))
        sha256.update(text.encode())
        if not row.fields.keys() <= columns.keys():
            columns.update(dict.fromkeys(row.fields))
    if not marks:
        raise _empty(table.source)
    _check_unique(table, ids)
    missing = [name for name in required if not is_reachable(columns, name)]
    if missing:
        inputs = required if isinstance(required, Mapping) else {}
        raise _absent(missing, columns, table.source, inputs)
    return TableCheck(len(marks), sha256.hexdigest(), marks)


def checked_rows(table: Table, check: TableCheck) -> Iterator[Row]:
    """Yield the rows of `table` again, and make sure that they are those that were checked.

    Raises:
        DataError: a row is another than in the check, is gone, or has come since.
    """
    number = 0
    for row, text in _encoded(table):
        if number == check.rows or hash(text) != check.marks[number]:
            raise _changed(table.source.name, row.line)
        number += 1
        yield row
    if number < check.rows:
        raise _changed(table.source.name, None)


def _encoded(table: Table) -> Iterator[tuple[Row, str]]:
    """Yield each row with the JSON of its id and fields, by which it is known again."""
    # What has no form in JSON cannot be judged either, so its type is all that counts.
    encoder = json.JSONEncoder(separators=(",", ":"), default=lambda value: type(value).__name__)
    for row in table:
        try:
            try:
                text = encoder.encode([row.id, row.fields])
            except (TypeError, ValueError):  # a key that is no text, a number of 5,000 digits
                text = encoder.encode([row.id, _encodable(row.fields, encoder)])
        except RecursionError:
            raise DataError("is nested too deeply", path=table.source.name, line=row.line) from None
        yield row, text


def _encodable(fields: Mapping[str, Any], encoder: json.JSONEncoder) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for name, value in fields.items():
        known[name] = value
        try:
            encoder.encode(value)
        except (TypeError, ValueError):
            known[name] = type(value).__name__
    return known


def _changed(source: str, line: int | None) -> DataError:
    return DataError(
        "the data changed while it was judged",
        path=source,
        line=line,
        hint="let nothing write to it; put the old file back, or judge the new one in a new folder",
    )


def _check_unique(table: Table, hashes: array[int]) -> None:
    import numpy as np

    ordered = np.sort(np.frombuffer(hashes, np.int64))
    repeated = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if not repeated:
        return
    # Different ids may share a hash, so the ids themselves are compared in a second pass.
    lines: dict[str, int] = {}
    for row in table:
        if hash(row.id) not in repeated:
            continue
        if row.id in lines:
            raise DataError(
                f"the id {row.id!r} was already given on line {lines[row.id]}",
                path=table.source.name,
                line=row.line,
                field=table.id_column,
                hint="make the ids unique, or name another column that holds unique ones",
            )
        lines[row.id] = row.line


def _absent(
    missing: Sequence[str],
    columns: Iterable[str],
    source: Source,
    inputs: Mapping[str, str] | None = None,
) -> DataError:
    plain = {name.strip().casefold(): name for name in columns}
    hints = []
    mapped = []
    for name in missing:
        near = None
        for part in dict.fromkeys((name, str(steps(name)[0]))):
            for close in difflib.get_close_matches(part.strip().casefold(), plain, n=1):
                near = plain[close] if part == name else None
                hints.append(f"did you mean {plain[close]!r} for {part!r}?")
        if inputs:
            given = f"{inputs[name]}={near or 'COLUMN'}"
            mapped.append(f"--map {shlex.quote(given)}")
    if mapped:
        hints.append(f"say which column it is: {' '.join(mapped)};")
    for name in source.left_out():
        if name in missing:
            hints.append(f"{name!r} holds bytes, which have no text form: turn it into text.")
    hints.append(f"the columns present: {', '.join(map(repr, columns))}")
    problem = f"no such column: {', '.join(map(repr, missing))}"
    return DataError(problem, path=source.name, hint=" ".join(hints))
