"""The log of a run for `--log-file`: plain lines with the time, added to the end of a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from localjudge.errors import LocaljudgeError
from localjudge.outputs import unwritable


@contextmanager
def log_file(path: str | PathLike[str] | None) -> Iterator[Callable[[str], None]]:
    """Give a function that logs a text, each of its lines behind the time (UTC).

    What ends the block is logged too. Without a path, nothing is.

    Raises:
        RunError: the file cannot be written.
    """
    if path is None:
        yield lambda _: None
        return
    path = Path(path)
    try:
        file = path.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
    except OSError as error:
        raise unwritable(path, error) from error

    def log(text: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            file.writelines(f"{now} {line}\n" for line in text.splitlines() if line.strip())
        except OSError as error:
            raise unwritable(path, error) from error

    with file:
        log("started")
        try:
            yield log
        except LocaljudgeError as error:
            log(f"stopped: {error}")
            raise
        except BaseException as error:
            log(f"stopped: {error!r}")
            raise
        log("ended")
