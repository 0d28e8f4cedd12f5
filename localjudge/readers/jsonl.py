"""JSON Lines: one object on each line."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localjudge.errors import DataError
from localjudge.readers.lines import read_lines

_HINT = "each line must hold one whole JSON object"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line and the fields of each record; blank lines are skipped.

    Values keep the types that JSON gives them. NaN and numbers beyond the range of a float, which
    are not JSON, are read as missing, with a warning.

    Raises:
        DataError: a line is not one JSON object, names a key twice in one object, or holds half a
            surrogate pair.
    """

    def missing(text: str) -> None:
        warnings.warn(f"{path}: NaN and infinite numbers are read as missing values", stacklevel=2)

    def number(text: str) -> float | None:
        value = float(text)
        if math.isfinite(value):
            return value
        missing(text)
        return None

    decoder = json.JSONDecoder(
        object_pairs_hook=_distinct, parse_constant=missing, parse_float=number
    )
    for line, text in read_lines(path):
        text = text.rstrip(" \t\r\n")
        if not text:
            continue
        try:
            fields = decoder.decode(text)
        except json.JSONDecodeError as error:
            problem = f"not a JSON object: {error.msg} (column {error.colno})"
            raise DataError(problem, path=path, line=line, hint=_HINT) from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"cannot be read: {error}", path=path, line=line) from None
        if not isinstance(fields, dict):
            problem = f"a record must be a JSON object, not {type(fields).__name__}"
            raise DataError(problem, path=path, line=line, hint=_HINT)
        if "\\u" in text and _SURROGATE.search(text):
            _check_text(fields, path, line)
        yield line, fields


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        [(repeated, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {repeated!r} stands twice in one object")
    return fields


def _check_text(fields: dict[str, Any], path: Path, line: int) -> None:
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise DataError(
            f"{half} is half of a surrogate pair, which is not text",
            path=path,
            line=line,
            hint="the text was cut inside a character when the file was made",
        ) from None
