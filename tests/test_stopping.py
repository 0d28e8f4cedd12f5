"""A run that is told to stop, or killed, ends at once; what was judged stays, nobody is left."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest


def needs_vllm(test):
    missing = find_spec("vllm") is None
    return pytest.mark.vllm(pytest.mark.skipif(missing, reason="vLLM is not installed")(test))


VLLM = (
    *("--engine", "vllm", "--engine-arg", "kv_cache_memory_bytes=50000000"),
    *("--engine-arg", "enforce_eager=true"),
)

# vLLM in a process of its own, as on a GPU.
OWN_PROCESS = """
from localjudge import cli
from localjudge.engines import vllm
class Own(vllm.VllmEngine):
    def __init__(self, folder, **settings):
        super().__init__(folder, own_process=True, **settings)
if __name__ == "__main__":
    vllm.VllmEngine = Own
    cli.main()
"""


class Run:
    """A run of the command line in a process group of its own."""

    def __init__(self, folder: Path, model: Path, *options: str, script: Path | None = None):
        rows = folder / "rows.jsonl"
        rows.write_text("".join(f'{{"output": "{"text " * 200}{i}"}}\n' for i in range(20_000)))
        self.out = folder / "out"
        command = [str(script)] if script else ["-m", "localjudge"]
        command += ["run", "toxicity", "--data", str(rows), "--model", str(model)]
        command += ["--out", str(self.out), *options]
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_until_judging(self) -> None:
        wal = self.out / "verdicts.db-wal"
        self._wait(lambda: wal.exists() and wal.stat().st_size > 100_000)

    def wait_until_loading(self, library: str) -> None:
        maps = Path(f"/proc/{self.process.pid}/maps")
        self._wait(lambda: library in maps.read_text())

    def wait_until_process(self, name: str) -> None:
        self._wait(lambda: any(name in process.name() for process in self.group()))

    def _wait(self, happened) -> None:
        while not happened():
            assert self.process.poll() is None, self.process.stderr.read()
            time.sleep(0.02)

    def group(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                same = os.getpgid(process.pid) == self.process.pid
                if same and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (ProcessLookupError, psutil.Error):
                continue
        return found

    def ends(self, code: int) -> str:
        """Return what it said; it is gone, and so is everybody whom it had started."""
        group = self.group()
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == code, errors
        assert not psutil.wait_procs(group, timeout=20)[1]
        assert not self.group()
        assert "Traceback" not in errors or code < 0
        return errors


@pytest.fixture
def start(tmp_path, toy):
    runs = []

    def start(*options: str, script: str | None = None) -> Run:
        file = None
        if script:
            file = tmp_path / "script.py"
            file.write_text(script)
        runs.append(Run(tmp_path, toy, *options, script=file))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)


def test_while_loading_with_transformers(start):
    run = start("--engine", "transformers")
    run.wait_until_loading("libtorch_cpu")
    run.process.send_signal(signal.SIGINT)
    assert "goes on from here" in run.ends(130)


@needs_vllm
def test_while_loading_with_vllm(start):
    run = start(*VLLM)
    run.wait_until_loading("vllm/_C")
    run.process.send_signal(signal.SIGINT)
    assert "goes on from here" in run.ends(130)


@needs_vllm
def test_while_judging_with_vllm_everything_is_stored(start):
    run = start(*VLLM)
    run.wait_until_judging()
    run.process.send_signal(signal.SIGTERM)
    assert "goes on from here" in run.ends(143)
    with closing(sqlite3.connect(run.out / "verdicts.db")) as db:
        [stored] = db.execute("SELECT count(*) FROM verdicts").fetchone()
    assert stored >= 128
    assert stored % 128 == 0


@needs_vllm
def test_ctrl_c_reaches_vllms_own_process_too(start):
    run = start(*VLLM, script=OWN_PROCESS)
    run.wait_until_judging()
    assert any("EngineCore" in process.name() for process in run.group())
    os.killpg(run.process.pid, signal.SIGINT)
    assert "goes on from here" in run.ends(130)


@needs_vllm
def test_a_killed_run_leaves_nobody_behind(start):
    run = start(*VLLM, script=OWN_PROCESS)
    run.wait_until_process("VLLM::Worker")
    run.process.kill()
    run.ends(-signal.SIGKILL)
