"""TOML files with known keys only, and errors that name the place."""

from __future__ import annotations

import difflib
import re
import reprlib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from localjudge.errors import MetricError


def closest(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the known word nearest to `word`, or all of them if none is near."""
    words = list(known)
    near = difflib.get_close_matches(word, words, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(words)}"


class TomlTable(BaseModel):
    """A table whose keys are all known and whose values have exactly the declared types."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _only_known_keys(cls, table: Any) -> Any:
        # Before all else, so that a misspelt key is reported as such and not as a missing one.
        for key in table if isinstance(table, dict) else ():
            if key not in cls.model_fields:
                raise PydanticCustomError(
                    "unknown_key",
                    "unknown key {key}",
                    {"key": repr(key), "hint": closest(key, cls.model_fields)},
                )
        return table


Shape = TypeVar("Shape", bound=TomlTable)


def read_toml(shape: type[Shape], path: Path) -> Shape:
    """Read a TOML file of one shape.

    Raises:
        MetricError: the file cannot be read, is not UTF-8 or not TOML, has an unknown key, lacks
            one, or holds a value of the wrong type.
    """
    try:
        return shape.model_validate(_read(path))
    except ValidationError as error:
        raise _shape_error(error.errors(include_url=False)[0], path) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe would keep us
            raise MetricError(
                "this is not a regular file", path=path, hint="save what it gives to a file"
            )
        data = path.read_bytes()
    except IsADirectoryError:
        raise MetricError(
            "this is a folder", path=path, hint="name one file (.toml) in it"
        ) from None
    except FileNotFoundError:
        raise MetricError(
            "there is no such file",
            path=path,
            hint="check the path (`localjudge metrics` lists the metrics that are shipped)",
        ) from None
    except (OSError, ValueError) as error:  # a path cannot hold every character
        problem = getattr(error, "strerror", None) or error
        raise MetricError(f"cannot be read: {problem}", path=path) from None
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise MetricError(
            "the text is not valid UTF-8",
            path=path,
            line=data[: error.start].count(b"\n") + 1,
            hint="save the file as UTF-8",
        ) from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))  # otherwise "at end of document"
        raise MetricError(
            f"not valid TOML: {error}",
            path=path,
            line=int(place[1]) if place else len(data.splitlines()),
        ) from None


def _shape_error(error: ErrorDetails, path: Path) -> MetricError:
    problem = error["msg"]
    if error["type"] == "missing":
        problem = "this key is missing"
    elif error["type"] not in ("unknown_key", "labels", "label_entry"):
        problem = f"{problem[0].lower()}{problem[1:]}, not {reprlib.repr(error['input'])}"
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
    return MetricError(
        problem,
        path=path,
        field=field.removeprefix(".") or None,
        hint=error.get("ctx", {}).get("hint"),
    )
