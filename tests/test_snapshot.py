"""A database is read while another writes to it: each reading is of one moment."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing

import pytest

from localjudge import snapshot as module
from localjudge.errors import RunError, RunLocked
from localjudge.records import Status, Verdict
from localjudge.runs import open_run
from localjudge.snapshot import snapshot
from localjudge.store import RunStore

CHUNK = 20


def test_every_reading_of_a_run_that_goes_on_is_whole(tmp_path):
    folder = tmp_path / "run"
    stop = threading.Event()
    saved = [0]

    def write():
        with RunStore.open(folder, {"metrics": {"m": "1"}}) as store:
            while not stop.is_set():
                rows = range(saved[0], saved[0] + CHUNK)
                text = "x" * 4000  # so that the log is often moved into the file
                verdicts = [
                    Verdict(str(n), "m", Status.OK, value="a", explanation=text) for n in rows
                ]
                store.save(zip(rows, verdicts, strict=True))
                saved[0] += CHUNK
                stop.wait(0.02)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while saved[0] < CHUNK:
            stop.wait(0.01)
        for _ in range(15):
            before = saved[0]
            found = [verdict.id for verdict in open_run(folder).verdicts()]
            assert found == [str(n) for n in range(len(found))]
            assert len(found) % CHUNK == 0
            assert before <= len(found)
    finally:
        stop.set()
        writer.join()


def database(path):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (n)")
    return path


def test_a_file_that_never_rests_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    path = database(tmp_path / "a.db")

    def copy_while_written_to(source, target):
        with source.open("ab") as file:
            file.write(b" ")

    monkeypatch.setattr(module, "_TICK", 0)
    monkeypatch.setattr(module, "copyfile", copy_while_written_to)
    with pytest.raises(RunLocked) as caught, snapshot(path):
        pass
    assert "localjudge status" in caught.value.hint


@pytest.mark.parametrize("content", [b"no database" * 1000, b""])
def test_a_file_that_is_no_database_is_named(tmp_path, content):
    path = tmp_path / "a.db"
    path.write_bytes(content)
    with pytest.raises(RunError) as caught, snapshot(path) as db:
        db.execute("SELECT * FROM t")
    assert caught.value.path == str(path)
