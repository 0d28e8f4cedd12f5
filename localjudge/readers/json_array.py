"""A JSON file that is one array of objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from localjudge.errors import DataError
from localjudge.readers.files import DataFile
from localjudge.readers.lines import read_chunks
from localjudge.readers.objects import check_text, decoder

_BLANK = re.compile(r"[ \t\n\r]*")
_TOKEN = 12  # characters of the longest piece that looks wrong when it is cut off: \ud83d\ude00


def read_json(file: DataFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line on which each object of the array begins, and its fields. See `decoder`.

    No more of the file is held than one chunk and the record that is read.

    Raises:
        DataError: the file is not one array of objects, an object names a key twice, or a text
            holds half a surrogate pair.
    """
    decode = decoder(file.path).raw_decode
    with closing(read_chunks(file)) as chunks:
        text = _Unread(chunks)
        first = text.peek()
        if not first:
            return
        if first != "[":
            raise _broken(file, text, "the file is not a JSON array of objects", _lines_hint(first))
        text.use(1)
        record = 0
        following = text.peek()
        while following != "]":
            if record:
                if following != ",":
                    raise _broken(file, text, f"no comma or ] behind record {record}")
                text.use(1)
                following = text.peek()
            record += 1
            if following != "{":
                raise _broken(file, text, f"record {record} is not a JSON object")
            fields, size = _object(decode, text, record, file)
            yield text.line, fields
            text.use(size)
            following = text.peek()
        text.use(1)
        if text.peek():
            raise _broken(file, text, "there is more text behind the array")


class _Unread:
    """The text of a file from the place up to which it was used, as far as it is in memory."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self._chunks = chunks
        self.text = ""
        self.start = 0
        self.line = 1

    def use(self, size: int) -> None:
        self.line += self.text.count("\n", self.start, self.start + size)
        self.start += size

    def peek(self) -> str:
        """Skip blanks and return the next character, which is not used yet; "" at the end."""
        while True:
            blank = _BLANK.match(self.text, self.start)
            self.use(blank.end() - self.start if blank else 0)
            if self.start < len(self.text):
                return self.text[self.start]
            if not self.grow():
                return ""

    def grow(self) -> bool:
        """Read on, by at least as much as is unread; say whether there was more."""
        pieces = [self.text[self.start :]]
        wanted, read = max(1, len(pieces[0])), 0
        while read < wanted and (chunk := next(self._chunks, None)) is not None:
            pieces.append(chunk)
            read += len(chunk)
        self.text, self.start = "".join(pieces), 0
        return read > 0


def _object(decode: Any, text: _Unread, record: int, file: DataFile) -> tuple[dict[str, Any], int]:
    """Decode the object that begins here, and return it with its length."""
    while True:
        try:
            fields, end = decode(text.text, text.start)
        except json.JSONDecodeError as error:
            cut = error.pos + _TOKEN >= len(text.text) or error.msg.startswith("Unterminated")
            if cut and text.grow():
                continue
            place = error.pos - text.start
            # The place behind a control character: a line break must not count as the next line.
            if error.msg.startswith("Invalid control") and text.text[error.pos - 1] < " ":
                place -= 1
            text.use(place)
            problem = f"record {record} is not a JSON object: {error.msg}"
            raise _broken(file, text, f"{problem} (character {place + 1} of it)") from None
        except (ValueError, RecursionError) as error:
            raise _broken(file, text, f"record {record} cannot be read: {error}") from None
        check_text(fields, text.text[text.start : end], file.path, text.line)
        return fields, end - text.start


def _lines_hint(first: str) -> str:
    if first == "{":
        return "if every line holds one object, the format is jsonl: name the file so, or say so"
    return "the file must be [{...}, {...}, ...]"


def _broken(file: DataFile, text: _Unread, problem: str, hint: str | None = None) -> DataError:
    hint = hint or "the file is damaged or cut off: it must be [{...}, {...}, ...]"
    return DataError(problem, path=file.path, line=text.line, hint=hint)
