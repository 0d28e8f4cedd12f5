"""Ends vLLM's own process when ours is gone, also where nothing could be said before: kill -9.

vLLM's process does not notice, and would keep the GPU's memory. It imports this module as the
extension of its workers, and that is all: importing it starts the watch. So nobody else imports it.
"""

from __future__ import annotations

import os
import select
import signal
import threading

from localjudge.engines.vllm_loading import OWNER


class Guard:
    """What vLLM wants to find here; it adds nothing to a worker."""


def _end_with(owner: int) -> None:
    try:
        handle = os.pidfd_open(owner)
        select.select([handle], [], [])  # returns when the process has ended
    except ProcessLookupError:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if os.environ[OWNER] != str(os.getpid()):
    # Ctrl-C reaches every process of a terminal; ours ends this one, which would print a traceback.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(int(os.environ[OWNER]),), daemon=True).start()
