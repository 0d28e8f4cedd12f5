"""JSON Lines: one object on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from localjudge.errors import DataError
from localjudge.readers.files import DataFile
from localjudge.readers.lines import read_lines
from localjudge.readers.objects import check_text, decoder

_HINT = "each line must hold one whole JSON object"


def read_jsonl(file: DataFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line and the fields of each record; blank lines are skipped. See `decoder`.

    Raises:
        DataError: a line is not one JSON object, names a key twice in one object, or holds half a
            surrogate pair.
    """
    path, decode = file.path, decoder(file.path).decode
    for line, text in read_lines(file):
        text = text.rstrip(" \t\r\n")
        if not text:
            continue
        try:
            fields = decode(text)
        except json.JSONDecodeError as error:
            problem = f"not a JSON object: {error.msg} (column {error.colno})"
            hint = _HINT
            if text.startswith("["):
                hint += "; a file that is one JSON array has the ending .json"
            raise DataError(problem, path=path, line=line, hint=hint) from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"cannot be read: {error}", path=path, line=line) from None
        if not isinstance(fields, dict):
            problem = f"a record must be a JSON object, not {type(fields).__name__}"
            raise DataError(problem, path=path, line=line, hint=_HINT)
        check_text(fields, text, path, line)
        yield line, fields
