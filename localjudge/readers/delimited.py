"""CSV and TSV: text in columns, under a header."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from localjudge.errors import DataError
from localjudge.readers.files import DataFile
from localjudge.readers.lines import read_lines

Cells = dict[str, str | None]


def read_csv(file: DataFile) -> Iterator[tuple[int, Cells]]:
    """Yield the first line and the cells of each record of a comma-separated file.

    Every cell is text as it stands, `NA` and `null` too; only an empty one is missing. Blank lines
    are skipped, but where there is only one column, those before the last row are empty cells.

    Raises:
        DataError: the quoting is broken or looks so, a record has more or fewer cells than the
            header, or a column has no name or that of another.
    """
    return _read(file, ",")


def read_tsv(file: DataFile) -> Iterator[tuple[int, Cells]]:
    """Yield the records of a tab-separated file, in all else like `read_csv`."""
    return _read(file, "\t")


def _read(file: DataFile, delimiter: str) -> Iterator[tuple[int, Cells]]:
    path = file.path
    header: list[str] = []
    blank: list[int] = []
    for line, cells in _records(file, delimiter):
        if not cells:
            blank.append(line)
        elif not header:
            _check_header(cells, path, line)
            header = cells
            blank.clear()
        elif len(cells) != len(header):
            raise DataError(
                f"{len(cells)} cells, but the header names {len(header)} columns",
                path=path,
                line=line,
                hint="a cell that holds the separator or a line break must be in quotes",
            )
        else:
            if len(header) == 1:
                for empty in blank:
                    yield empty, {header[0]: None}
            blank.clear()
            _check_cells(cells, delimiter, path, line)
            yield line, {name: cell or None for name, cell in zip(header, cells, strict=True)}


def _check_cells(cells: list[str], delimiter: str, path: Path, line: int) -> None:
    """Refuse a cell that looks as if a quotation mark that was never closed had swallowed rows.

    Each line behind its first is then a row, but for the last, which ends with this cell. Prose
    seldom looks so: it has a blank behind a comma.
    """
    for place, cell in enumerate(cells):
        if "\n" not in cell:
            continue
        rows = [text.rstrip("\r").split(delimiter) for text in cell.split("\n")[1:]]
        sizes = [len(row) for row in rows]
        swallowed = len(cells) > 1 and len(rows) > 1 and sizes[-1] == place + 1
        if swallowed and all(size == len(cells) for size in sizes[:-1]):
            if any(part.startswith(" ") for row in rows for part in row[1:]):
                continue
            raise DataError(
                f"the cell that begins here holds {len(rows)} further lines that look like rows",
                path=path,
                line=line + sum(before.count("\n") for before in cells[:place]),
                hint='a quotation mark that opens a cell must be doubled if it is text: """; '
                "if the cell is right, give the file as .jsonl or .parquet",
            )


def _records(file: DataFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(sys.maxsize)  # the default refuses cells above 128 KiB
    reader = csv.reader(_lines(file), delimiter=delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"the record that begins here is broken: {error}",
            path=file.path,
            line=line,
            hint='put cells with quotes or line breaks in quotes, and double the quotes inside: ""',
        ) from None


def _lines(file: DataFile) -> Iterator[str]:
    for number, text in read_lines(file):
        if "\0" in text:
            raise DataError(
                "holds a NUL byte, which is not text",
                path=file.path,
                line=number,
                hint="the file is damaged, or not UTF-8 text",
            )
        yield text


def _check_header(names: list[str], path: Path, line: int) -> None:
    seen: set[str] = set()
    for place, name in enumerate(names, 1):
        if not name.strip():
            raise DataError(f"column {place} of the header has no name", path=path, line=line)
        if name in seen:
            raise DataError("the header names this column twice", path=path, line=line, field=name)
        seen.add(name)
