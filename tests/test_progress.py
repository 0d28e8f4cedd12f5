"""How far a run is, read from outside while it goes, when it was killed, and when it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from localjudge.engines.base import Failure
from localjudge.errors import RunError
from localjudge.progress import Progress, read_status
from localjudge.records import Status
from localjudge.runs import open_run
from tests.test_run import TONE, data, scripted, start


def test_rates_are_those_of_this_start():
    progress = Progress(60, 100, 30, 1, 10.0, reused=10, tokens=500)
    assert progress.rows_per_second == 4
    assert progress.tokens_per_second == 50
    assert progress.seconds_left == 10
    assert Progress(60, 100, 0, 0, 0.0).seconds_left is None


def test_a_run_can_be_watched_while_it_goes(tmp_path, toy):
    seen = []
    start(
        tmp_path,
        data(tmp_path, 10),
        TONE,
        model=toy,
        open_judge=scripted(lambda *_: [0.6, 0.4]),
        on_progress=lambda progress: seen.append((progress, read_status(tmp_path / "run"))),
    )
    for progress, status in seen:
        assert status.progress == progress
        assert (status.state, status.error) == ("judging", None)
        assert f"process {os.getpid()} on" in (status.holder or "")
    ended = read_status(tmp_path / "run")
    assert (ended.state, ended.holder) == ("finished", None)
    assert (ended.progress.done, ended.progress.total, ended.progress.judged) == (10, 10, 10)
    assert ended.progress.tokens > 1000


def test_what_stopped_a_run_is_told(tmp_path, toy):
    file = data(tmp_path, 10)
    with pytest.raises(RunError, match="more than the 2 allowed"):
        start(
            tmp_path,
            file,
            TONE,
            model=toy,
            max_failures=2,
            open_judge=scripted(lambda p, _: Failure("no memory") if "> text" in p else [0.6, 0.4]),
        )
    status = read_status(tmp_path / "run")
    assert (status.state, status.holder) == ("stopped", None)
    assert "more than the 2 allowed (10 engine_error)" in (status.error or "")
    assert "no memory" in (status.error or "")
    failed = [v for v in open_run(tmp_path / "run").verdicts() if v.status is Status.ENGINE_ERROR]
    assert len(failed) == 10
    assert start(tmp_path, file, TONE, model=toy, max_failures=2).failed == 0


GOING = """
import sys, time
from tests.test_run import TONE, scripted
from localjudge.engines.scripted import ScriptedEngine
from localjudge.run import run_file
ScriptedEngine.chunk_rows = 4
def choose(prompt, size):
    if "> text 5" in prompt:
        print("there", flush=True)
        time.sleep(600)
    return [0.6, 0.4]
file, model, out = sys.argv[1:]
run_file([TONE], file, model=model, out=out, open_judge=scripted(choose))
"""


def test_a_run_that_was_killed_is_told_from_one_that_goes(tmp_path, toy):
    file, out = data(tmp_path, 10), tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-c", GOING, str(file), str(toy), str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"there\n"
            going = read_status(out)
            before = sorted(path.name for path in out.iterdir())
            made = [verdict.id for verdict in open_run(out).verdicts()]
            assert sorted(path.name for path in out.iterdir()) == before
        finally:
            process.send_signal(signal.SIGKILL)
    assert made == ["r0", "r1", "r2", "r3"]
    assert going.state == "judging"
    assert f"process {process.pid} on" in (going.holder or "")
    assert (going.progress.done, going.progress.total) == (4, 10)
    killed = read_status(out)
    assert (killed.state, killed.holder, killed.progress) == ("stopped", None, going.progress)
    assert [verdict.id for verdict in open_run(out).verdicts()] == ["r0", "r1", "r2", "r3"]
    result = start(tmp_path, file, TONE, model=toy)
    assert (result.judged, read_status(out).progress.done) == (6, 10)


def test_where_nothing_runs_nothing_is_told(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(RunError, match="there is no run here") as caught:
            read_status(folder)
        assert caught.value.path == str(folder)


GOOD = {
    **{"state": "judging", "error": None, "updated": 1.0, "done": 1, "total": 2, "judged": 1},
    **{"failed": 0, "seconds": 0.5, "reused": 0, "tokens": 3},
}


def test_what_the_damaged_files_are_changed_from_is_read(tmp_path):
    (tmp_path / "progress.json").write_text(json.dumps(GOOD))
    assert read_status(tmp_path).progress.tokens == 3


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", '{"state": "judging"}', "\x00", "[" * 100_000, "5"),
        json.dumps(GOOD)[:-5],
        *(json.dumps({k: v for k, v in GOOD.items() if k != name}) for name in GOOD
          if name not in ("reused", "tokens")),
        *(json.dumps(GOOD | {name: odd}) for name in GOOD for odd in ("x", [], {}, -1, True)
          if (name, odd) != ("error", "x")),
        *(json.dumps(GOOD | {name: float("nan")}) for name in ("updated", "seconds", "done")),
        json.dumps(GOOD | {"done": None}),
        json.dumps(GOOD | {"done": 0.5}),
        json.dumps(GOOD | {"more": 1}),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "progress.json").write_text(content)
    with pytest.raises(RunError, match="damaged") as caught:
        read_status(tmp_path)
    assert caught.value.path == str(tmp_path / "progress.json")


def test_a_progress_file_that_cannot_be_written_stops_the_run(tmp_path, toy):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").touch()
    (tmp_path / "run" / "progress.json").mkdir()
    with pytest.raises(RunError, match="cannot be written") as caught:
        start(tmp_path, data(tmp_path, 3), TONE, model=toy)
    assert caught.value.path == str(tmp_path / "run" / "progress.json")


def test_what_is_written_is_plain_json(tmp_path, toy):
    start(tmp_path, data(tmp_path, 3), TONE, model=toy)
    record = json.loads((tmp_path / "run" / "progress.json").read_text())
    assert record.keys() == {
        *("state", "error", "updated", "done", "total", "judged", "failed"),
        *("seconds", "reused", "tokens"),
    }
    assert not (tmp_path / "run" / "progress.json.partial").exists()


def test_prompts_that_the_model_does_not_read_add_no_tokens(tmp_path, toy):
    file = tmp_path / "rows.jsonl"
    rows = [{"id": "a", "output": "short"}, {"id": "b", "output": "long " * 40_000}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    start(tmp_path, file, TONE, model=toy, open_judge=scripted(context_length=4000))
    [short, long] = open_run(tmp_path / "run").verdicts()
    assert long.status is Status.INPUT_TOO_LONG
    assert read_status(tmp_path / "run").progress.tokens == short.prompt_tokens
