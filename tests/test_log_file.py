"""The log: one line a fact, with the time, and what stopped a run."""

from __future__ import annotations

import re

import pytest

from localjudge.errors import DataError, RunError
from localjudge.log_file import log_file

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "


def logged(path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(re.match(TIME, line) for line in lines)
    return [re.sub(TIME, "", line) for line in lines]


def test_every_line_has_the_time_and_starts_are_added(tmp_path):
    path = tmp_path / "run.log"
    with log_file(path) as log:
        log("engine vllm: it suits\n\nup to 8 tokens")
        assert logged(path)[-1] == "up to 8 tokens"  # at once, not when the run ends
    with pytest.raises(DataError), log_file(path):
        raise DataError("is no text", path="rows.csv", line=3, hint="mend it")
    with pytest.raises(ZeroDivisionError), log_file(path):
        raise ZeroDivisionError("oh")
    assert logged(path) == [
        *("started", "engine vllm: it suits", "up to 8 tokens", "ended"),
        *("started", "stopped: rows.csv:3: is no text", "  hint: mend it"),
        *("started", "stopped: ZeroDivisionError('oh')"),
    ]


def test_without_a_file_nothing_is_logged():
    with log_file(None) as log:
        log("anything")


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(RunError, match="cannot be written") as caught, log_file(tmp_path):
        pass
    assert caught.value.path == str(tmp_path)
