"""CSV and TSV: text in columns, under a header."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from localjudge.errors import DataError
from localjudge.readers.lines import read_lines

Cells = dict[str, str | None]


def read_csv(path: Path) -> Iterator[tuple[int, Cells]]:
    """Yield the first line and the cells of each record of a comma-separated file.

    Every cell is text as it stands, `NA` and `null` too; only an empty one is missing. Blank lines
    are skipped.

    Raises:
        DataError: the quoting is broken, a record has more or fewer cells than the header, or a
            column has no name or that of another.
    """
    return _read(path, ",")


def read_tsv(path: Path) -> Iterator[tuple[int, Cells]]:
    """Yield the records of a tab-separated file, in all else like `read_csv`."""
    return _read(path, "\t")


def _read(path: Path, delimiter: str) -> Iterator[tuple[int, Cells]]:
    header: list[str] = []
    for line, cells in _records(path, delimiter):
        if not header:
            _check_header(cells, path, line)
            header = cells
        elif len(cells) != len(header):
            raise DataError(
                f"{len(cells)} cells, but the header names {len(header)} columns",
                path=path,
                line=line,
                hint="a cell that holds the separator or a line break must be in quotes",
            )
        else:
            yield line, {name: cell or None for name, cell in zip(header, cells, strict=True)}


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(sys.maxsize)  # the default refuses cells above 128 KiB
    reader = csv.reader(_lines(path), delimiter=delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"the record that begins here is broken: {error}",
            path=path,
            line=line,
            hint='put cells with quotes or line breaks in quotes, and double the quotes inside: ""',
        ) from None


def _lines(path: Path) -> Iterator[str]:
    for number, text in read_lines(path):
        if "\0" in text:
            raise DataError(
                "holds a NUL byte, which is not text",
                path=path,
                line=number,
                hint="the file is damaged, or not UTF-8 text",
            )
        yield text


def _check_header(names: list[str], path: Path, line: int) -> None:
    for place, name in enumerate(names, 1):
        if not name.strip():
            raise DataError(f"column {place} of the header has no name", path=path, line=line)
        if name in names[: place - 1]:
            raise DataError("the header names this column twice", path=path, line=line, field=name)
