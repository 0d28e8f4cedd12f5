"""The lines of a UTF-8 text file, strictly decoded."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path

from localjudge.errors import DataError


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Yield the number, from 1, and the text of each line, with the `\n` that ends it.

    Nothing but `\n` ends a line: U+2028 or U+0085 inside a text is data. A byte order mark at the
    start is dropped.

    Raises:
        DataError: a byte is not UTF-8.
    """
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            try:
                text = raw.decode()
            except UnicodeDecodeError as error:
                offset = file.tell() - len(raw) + error.start
                raise DataError(
                    f"not UTF-8: byte 0x{raw[error.start]:02x} at offset {offset} of the file",
                    path=path,
                    line=number,
                    hint=_conversion(path, raw if number == 1 else b""),
                ) from None
            yield number, text


def _conversion(path: Path, start: bytes) -> str:
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return (
            "the first bytes are the mark of UTF-16; convert the file to UTF-8: "
            f"iconv -f UTF-16 -t UTF-8 {path.name}"
        )
    return (
        "convert the file to UTF-8; if it was written on Windows, perhaps: "
        f"iconv -f WINDOWS-1252 -t UTF-8 {path.name}"
    )
