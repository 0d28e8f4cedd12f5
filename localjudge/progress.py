"""How far a run is: what is told while it goes, and kept where another terminal can read it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from localjudge.errors import LocaljudgeError, RunError
from localjudge.lock import holder
from localjudge.outputs import unreadable, unwritable

_NAME = "progress.json"
_ENDED = ("finished", "stopped")
_STATES = ("loading", "judging", "writing", *_ENDED)
_MOST = 1e15  # more than any count or any number of seconds that can be meant


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        done: Verdicts that exist, of this start and of earlier ones.
        total: Verdicts that there will be: rows times metrics.
        judged: Verdicts that the model made since this start.
        failed: How many of those are not `ok`.
        seconds: Time since judging began.
        reused: Verdicts that were taken from the cache since this start.
        tokens: Tokens of the prompts and of what was written for the judged ones; prompts that are
            too long are not among them, for the model does not read them.
    """

    done: int
    total: int
    judged: int
    failed: int
    seconds: float
    reused: int = 0
    tokens: int = 0

    @property
    def rows_per_second(self) -> float | None:
        """Verdicts that came per second since this start; None before the first."""
        came = self.judged + self.reused
        return came / self.seconds if came and self.seconds else None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second since this start; None before the first verdict."""
        return self.tokens / self.seconds if self.tokens and self.seconds else None

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at this rate; None before the first verdict."""
        rate = self.rows_per_second
        return None if rate is None else (self.total - self.done) / rate


@dataclass(frozen=True, slots=True)
class RunStatus:
    """What a run is doing, as seen from outside.

    Attributes:
        state: `loading`, `judging`, `writing`, `finished` or `stopped`.
        progress: How far it is.
        updated: When that was written, in seconds since 1970.
        holder: The process that is at work on it; None if there is none.
        error: What stopped it, if it had the time to say so.
    """

    state: str
    progress: Progress
    updated: float
    holder: str | None = None
    error: str | None = None


class ProgressFile:
    """`progress.json` in a run folder, replaced whole at every step; a context manager.

    Args:
        folder: The run folder, which this process holds.
        start: Where the run stands.
        on_progress: Called at every step as well.

    Raises:
        RunError: the file cannot be written.
    """

    def __init__(
        self, folder: Path, start: Progress, on_progress: Callable[[Progress], None]
    ) -> None:
        self.now = start
        self._path = folder / _NAME
        self._on_progress = on_progress
        self.enter("loading")

    def enter(self, state: str, error: str | None = None) -> None:
        """Say what the run goes on to do."""
        record = {"state": state, "error": error, "updated": time.time(), **asdict(self.now)}
        partial = self._path.with_name(f"{_NAME}.partial")
        try:
            # Not synced to the disk: after a power cut, the verdicts count, not this.
            partial.write_text(json.dumps(record) + "\n", encoding="utf-8")
            os.replace(partial, self._path)
        except OSError as error_:
            raise unwritable(self._path, error_) from error_

    def judging(self, **came: Any) -> None:
        """Take the new numbers: arguments of `Progress`."""
        self.now = replace(self.now, **came)
        self.enter("judging")
        self._on_progress(self.now)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.enter("finished")
            return
        try:
            self.enter("stopped", str(error) if isinstance(error, LocaljudgeError) else repr(error))
        except RunError as also:
            error.add_note(str(also))


def read_status(folder: str | PathLike[str]) -> RunStatus:
    """Say what the run in `folder` is doing. It does not disturb a run that is going.

    Raises:
        RunError: there is no run, or its `progress.json` cannot be read.
    """
    path = Path(folder) / _NAME
    at_work = holder(Path(folder))
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        state, error, updated = (record.pop(name) for name in ("state", "error", "updated"))
        progress = Progress(**record)
        _check(state, error, {"updated": updated} | asdict(progress))
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(
            "there is no run here, or none that has begun",
            path=folder,
            hint="give the folder of a run; one that still checks its data has not begun",
        ) from None
    except OSError as problem:
        raise unreadable(path, problem) from problem
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as problem:
        raise RunError(
            f"damaged: {problem or type(problem).__name__}",
            path=path,
            hint="start the run again, and it is written anew; no verdict hangs on it",
        ) from None
    if at_work is None and state not in _ENDED:
        state = "stopped"  # it was killed: there was no time to say so
    return RunStatus(state, progress, updated, at_work if state not in _ENDED else None, error)


def _check(state: Any, error: Any, numbers: dict[str, Any]) -> None:
    if state not in _STATES:
        raise ValueError(f"the state is {state!r}")
    if error is not None and not isinstance(error, str):
        raise ValueError("the error is no text")
    for name, number in numbers.items():
        kinds = (int, float) if name in ("updated", "seconds") else (int,)
        if type(number) not in kinds or not 0 <= number < _MOST:
            raise ValueError(f"{name} is {number!r}")
