"""One process at a time on a run folder, and who it is."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from localjudge.errors import RunLocked
from localjudge.outputs import unreadable


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file at `path`, which names this process, while the block runs.

    Raises:
        RunLocked: another process holds it.
    """
    # The system frees the lock with the process, so a file left behind is no obstacle.
    with path.open("a+") as file:
        if not _taken(file, fcntl.LOCK_EX):
            file.seek(0)
            raise RunLocked(
                f"in use by {file.read().strip() or 'another process'}",
                path=path.parent,
                hint="`localjudge status` says how far it is: wait for it or end it; if it has "
                "ended, a process that it started has not",
            )
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def _taken(file: IO[str], kind: int) -> bool:
    # Who asks for the holder has the lock for a moment, so one refusal says nothing yet.
    for pause in (0.05, 0.1, 0.0):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(pause)
    return False


def holder(folder: Path) -> str | None:
    """Return which process has the run folder open; None if there is none.

    Raises:
        RunError: it cannot be found out.
    """
    try:
        with (folder / "lock").open() as file:
            if _taken(file, fcntl.LOCK_SH):
                return None
            return file.read().strip() or "another process"
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(folder / "lock", error) from error
