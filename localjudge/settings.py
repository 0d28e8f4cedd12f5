"""The settings of a run, `run.json`: once a verdict is there, every later start is held to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from localjudge.errors import RunChanged, RunError
from localjudge.outputs import replacing, unreadable

_UNCOMPARED = ("info", "resolved")
_READ_AS = ("split", "id_column", "limit")  # of `info`: how the data are read
_Change = tuple[str, str, str]


def keep_settings(path: Path, config: Mapping[str, Any], *, started: bool) -> None:
    """Write `config` to `path`, or make sure that a run that has `started` still has the same.

    Args:
        path: The file.
        config: The settings.
        started: Whether there is any verdict yet.

    Raises:
        RunChanged: it is another; every difference is named.
        RunError: the file is missing although the run has started, or it is damaged.
    """
    if not started:
        _write_config(path, config)
        return
    stored = read_settings(path)
    config = json.loads(json.dumps(config))
    old, new = (
        {k: v for k, v in each.items() if k not in _UNCOMPARED} for each in (stored, config)
    )
    if old != new:
        _refuse(path, _reasons(stored, config, changed_settings(old, new)))


def keep_resolved(path: Path, resolved: Mapping[str, Any]) -> None:
    """Do the same with what is only known once the engine is loaded."""
    stored = read_settings(path)
    if "resolved" not in stored:
        _write_config(path, stored | {"resolved": resolved})
    else:
        _refuse(path, changed_settings(stored["resolved"], json.loads(json.dumps(resolved))))


def read_settings(path: Path) -> dict[str, Any]:
    """Return what the file at `path` holds.

    Raises:
        RunError: it is missing, damaged or cannot be read.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(stored, dict):
            raise ValueError("not a JSON object")
    except FileNotFoundError:
        raise RunError(
            "is missing, so the settings of this run are not known",
            path=path,
            hint="put the file back, or choose a new folder",
        ) from None
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, RecursionError) as error:
        raise RunError(
            f"damaged: {error}", path=path, hint="restore the file, or choose a new folder"
        ) from None
    return stored


def _write_config(path: Path, config: Mapping[str, Any]) -> None:
    with replacing(path) as partial:
        text = json.dumps(config, ensure_ascii=False, allow_nan=False, indent=2)
        partial.write_text(text + "\n", encoding="utf-8")


def _reasons(
    stored: Mapping[str, Any], config: Mapping[str, Any], changes: Iterable[_Change]
) -> Iterator[_Change]:
    """Yield, in place of a hash that is another, what made it another, as far as that is known."""
    before, after = (
        each["info"] if isinstance(each.get("info"), dict) else {} for each in (stored, config)
    )
    changes = list(changes)
    options: list[_Change] = []
    if any(key == "data.digest" for key, _, _ in changes):
        for name in _READ_AS:
            if name in before and before[name] != after.get(name):
                values = json.dumps(before[name]), json.dumps(after.get(name))
                options.append((f"{name} (--{name.replace('_', '-')})", *values))
    yield from options
    for key, was, now in changes:
        if key in ("data.digest", "data.rows") and options:
            continue  # the rows are others since they are read otherwise
        if key.startswith("data.columns."):
            yield f"{key} (--map)", was, now
        elif key.startswith("metrics."):
            yield from _parts(key, before, after) or [(key, was, now)]
        else:
            yield key, was, now


def _parts(key: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[_Change]:
    """Return what changed in a metric; nothing if one of the two is not known."""
    named = [each.get("metrics") for each in (before, after)]
    old, new = (
        known.get(key.removeprefix("metrics.")) if isinstance(known, dict) else None
        for known in named
    )
    if not isinstance(old, dict) or not isinstance(new, dict):
        return []
    return [(f"{key}.{part}", was, now) for part, was, now in changed_settings(old, new)]


def _refuse(path: Path, changed: Iterable[_Change]) -> None:
    changes = [f"\n  {key}: {was} -> {now}" for key, was, now in changed]
    if changes:
        raise RunChanged(
            f"the folder holds a run with other settings (old -> new):{''.join(changes)}",
            path=path.parent,
            hint="choose a new folder, or go back to the old settings",
        )


def changed_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[_Change]:
    """Yield, of each setting that is not the same, the dotted key and both values, shortened."""
    before, after = dict(_flat(old)), dict(_flat(new))
    for key in before | after:
        was, is_now = before.get(key, "(absent)"), after.get(key, "(absent)")
        if was != is_now:
            yield key, *_excerpts(was, is_now)


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted key of each value that is not itself a mapping, and its JSON text."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _flat(item, f"{key}.{name}" if key else name)
    else:
        yield key, json.dumps(value, ensure_ascii=False)


def _excerpts(old: str, new: str) -> tuple[str, str]:
    """Show two texts from shortly before the place where they part."""
    pairs = enumerate(zip(old, new, strict=False))
    parted = next((place for place, (a, b) in pairs if a != b), min(len(old), len(new)))
    start = max(0, parted - 20)
    end = start + 60

    def excerpt(text: str) -> str:
        return "…" * (start > 0) + text[start:end] + "…" * (len(text) > end)

    return excerpt(old), excerpt(new)
