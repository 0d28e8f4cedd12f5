"""JSON objects, strictly decoded."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from localjudge.errors import DataError, DataWarning

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def decoder(path: Path) -> json.JSONDecoder:
    """Return the decoder of a file's records. It raises ValueError and RecursionError.

    Values keep the types that JSON gives them. NaN and numbers beyond the range of a float, which
    are not JSON, are read as missing, with a warning. A key that stands twice in one object is
    an error.
    """

    def missing(text: str) -> None:
        message = f"{path}: NaN and infinite numbers are read as missing values"
        warnings.warn(message, DataWarning, stacklevel=2)

    def number(text: str) -> float | None:
        value = float(text)
        if math.isfinite(value):
            return value
        missing(text)
        return None

    return json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=missing, parse_float=number)


def check_text(fields: dict[str, Any], text: str, path: Path, line: int) -> None:
    r"""Make sure that what was decoded from `text` holds no half of a surrogate pair.

    Raises:
        DataError: it does: `\ud83d` alone is no character.
    """
    if "\\u" not in text or not _SURROGATE.search(text):
        return
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


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        [(repeated, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {repeated!r} stands twice in one object")
    return fields
