"""Paths into nested values: `attributes.output.value`, `documents[0].text`."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Any

Steps = tuple[str | int, ...]

_STEP = re.compile(r"(?:^|(?<=.)\.)([^.\[\]]+)|\[(-?[0-9]{1,9})\]")


@lru_cache(maxsize=1024)
def steps(path: str) -> Steps:
    """Return the keys and indices of a path; a text that is no path is one key."""
    found: list[str | int] = []
    end = 0
    while end < len(path) and (match := _STEP.match(path, end)):
        found.append(match[1] if match[1] is not None else int(match[2]))
        end = match.end()
    whole = end == len(path) and found and isinstance(found[0], str)
    return tuple(found) if whole else (path,)


def lookup(fields: Mapping[str, Any], path: str) -> Any:
    """Return the value of a column or, if no column is called so, of a path; None if absent.

    A key that itself holds dots (`{"output.value": ...}`) is found as well: at each level the
    longest key that fits wins.
    """
    if path in fields:
        return fields[path]
    return _follow(fields, steps(path))


def is_reachable(columns: Container[str], path: str) -> bool:
    """Say whether a table with `columns` can hold a path: its name or its root is one of them."""
    return path in columns or any(key in columns for key, _ in _heads(steps(path)))


def _follow(value: Any, rest: Steps) -> Any:
    if not rest:
        return value
    if isinstance(rest[0], int):
        if not isinstance(value, list) or not -len(value) <= rest[0] < len(value):
            return None
        return _follow(value[rest[0]], rest[1:])
    if isinstance(value, Mapping):
        for key, behind in _heads(rest):
            if key in value:
                return _follow(value[key], behind)
    return None


def _heads(path: Steps) -> Iterator[tuple[str, Steps]]:
    """Yield each key that `path` may begin with, the longest first, and what is behind it."""
    names = list(takewhile(lambda step: isinstance(step, str), path))
    for count in range(len(names), 0, -1):
        yield ".".join(map(str, names[:count])), path[count:]
