"""A UTF-8 text file, strictly decoded: line by line, or chunk by chunk."""

from __future__ import annotations

import codecs
from collections.abc import Generator, Iterator
from pathlib import Path

from localjudge.errors import DataError
from localjudge.readers.files import DataFile

_CHUNK = 1 << 18  # bytes


def read_lines(file: DataFile) -> Iterator[tuple[int, str]]:
    r"""Yield the number, from 1, and the text of each line, with the `\n` that ends it.

    Nothing but `\n` ends a line: U+2028 or U+0085 inside a text is data. A byte order mark at the
    start is dropped.

    Raises:
        DataError: a byte is not UTF-8.
    """
    end = 0
    with file.open() as stream:
        for number, raw in enumerate(stream, 1):
            end += len(raw)
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            try:
                text = raw.decode()
            except UnicodeDecodeError as error:
                raise _not_utf8(error, file, number, end) from None
            yield number, text


def read_chunks(file: DataFile) -> Generator[str, None, None]:
    """Yield the text in chunks of no set size, without a byte order mark at the start.

    Raises:
        DataError: a byte is not UTF-8.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    line, end, ended = 1, 0, False
    with file.open() as stream:
        while not ended:
            raw = stream.read(_CHUNK)
            end, ended = end + len(raw), not raw
            try:
                text = decoder.decode(raw, final=ended)
            except UnicodeDecodeError as error:
                line += error.object.count(b"\n", 0, error.start)
                raise _not_utf8(error, file, line, end) from None
            line += text.count("\n")
            yield text


def _not_utf8(error: UnicodeDecodeError, file: DataFile, line: int, end: int) -> DataError:
    """Say which byte is wrong; what was decoded ends at the offset `end` of the file."""
    raw = error.object
    offset = end - len(raw) + error.start
    place = "the file" if file.compression is None else "what was compressed"
    return DataError(
        f"not UTF-8: byte 0x{raw[error.start]:02x} at offset {offset} of {place}",
        path=file.path,
        line=line,
        hint=_conversion(file.path, raw if len(raw) == end else b""),
    )


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
