"""The run folder: nothing is lost, nothing is judged twice, nobody else's files are touched."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path
from threading import Timer
from typing import Any

import pyarrow.parquet as pq
import pytest

from localjudge.errors import RunChanged, RunError, RunLocked
from localjudge.lock import holder
from localjudge.records import Status, Verdict
from localjudge.runs import read_verdicts
from localjudge.store import RunStore

CONFIG = {"metrics": {"tone": {"digest": "t1"}, "help": {"digest": "h1"}}, "data": "d1"}
ROWS = 1000
CHUNK = 50


def judged(position: int, metric: str, status: Status = Status.OK) -> tuple[int, Verdict]:
    """Return the verdict that a deterministic judge would give."""
    if status is not Status.OK:
        return position, Verdict(f"r{position}", metric, status, error="why")
    return position, Verdict(f"r{position}", metric, status, value="good", explanation="x" * 300)


def judge_all(store: RunStore, rows: int = ROWS) -> int:
    """Judge what is pending, as a run does, and return how many verdicts that took."""
    count = 0
    for start in range(0, rows, CHUNK):
        places = [(place, f"r{place}") for place in range(start, min(start + CHUNK, rows))]
        for metric in store.metrics:
            open_places = [
                place
                for (place, _), pending in zip(places, store.pending(metric, places), strict=True)
                if pending
            ]
            store.save(judged(place, metric) for place in open_places)
            count += len(open_places)
            print(count, flush=True)
    return count


def begun(folder: Path, config: dict[str, Any]) -> None:
    """Start a run and judge one row, which holds it to its settings."""
    with RunStore.open(folder, config) as store:
        store.save([judged(0, next(iter(config["metrics"])))])


@contextmanager
def other_process(folder: Path, body: str) -> Iterator[subprocess.Popen[str]]:
    """Run `body` in a process that has the store open as `store`."""
    code = (
        "import sys, time\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n"
        "from test_store import *\n"
        f"with RunStore.open({str(folder)!r}, CONFIG) as store:\n"
        f"    {body}\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of 1 MiB, where this user may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small file system")
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


# Saving and resuming


def test_what_was_saved_is_no_longer_pending(tmp_path):
    with RunStore.open(tmp_path / "deep" / "run", CONFIG) as store:
        store.save([judged(0, "tone"), judged(2, "tone")])
        assert store.pending("tone", [(0, "r0"), (1, "r1"), (2, "r2")]) == [False, True, False]
        assert store.pending("help", [(0, "r0")]) == [True]
    with RunStore.open(tmp_path / "deep" / "run", CONFIG) as store:
        assert store.pending("tone", [(1, "r1"), (2, "r2")]) == [True, False]


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_a_failed_row_is_pending_and_its_new_verdict_replaces_the_old(tmp_path, status):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(0, "tone", status)])
        assert store.pending("tone", [(0, "r0")]) == [True]
        store.save([judged(0, "tone")])
        assert store.pending("tone", [(0, "r0")]) == [False]
        assert list(store.verdicts()) == [judged(0, "tone")[1]]


def test_verdicts_come_in_the_order_of_the_data_and_then_of_the_metrics(tmp_path):
    with RunStore.open(tmp_path, CONFIG) as store:
        for position, metric in [(10, "help"), (9, "help"), (9, "tone"), (0, "tone"), (10, "tone")]:
            store.save([judged(position, metric)])
        assert [(verdict.id, verdict.metric) for verdict in store.verdicts()] == [
            ("r0", "tone"),
            ("r9", "tone"),
            ("r9", "help"),
            ("r10", "tone"),
            ("r10", "help"),
        ]


def test_metrics_may_be_given_as_a_list_of_names(tmp_path):
    with RunStore.open(tmp_path, {"metrics": ["b", "a"]}) as store:
        store.save([judged(0, "a"), judged(0, "b")])
        assert [verdict.metric for verdict in store.verdicts()] == ["b", "a"]


def test_counts_are_by_metric_and_status(tmp_path):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(0, "tone"), judged(1, "tone"), judged(2, "tone", Status.TRUNCATED)])
        tone, help_ = store.tallies()
        assert (tone.statuses, help_.statuses) == ({"ok": 2, "truncated": 1}, {})


def test_means_flips_and_cuts_are_those_of_the_verdicts_that_have_a_value(tmp_path):
    def asked(place, status=Status.OK, **facts):
        return place, Verdict(f"r{place}", "tone", status, **facts)

    with RunStore.open(tmp_path, CONFIG) as store:
        store.save(
            [
                asked(0, value="a", label="a", confidence=0.5, answer_mass=0.25),
                asked(1, value="b", label="b", confidence=1.0, answer_mass=0.75, truncated=True),
                asked(2, value="b", label="b", metadata={"order_flip": True, "label_flip": False}),
                asked(3, value="b", label="b", metadata={"order_flip": False, "label_flip": True}),
                asked(4, Status.TRUNCATED, truncated=True),
            ]
        )
        tone, help_ = store.tallies()
    assert list(tone.statuses.items()) == [("ok", 4), ("truncated", 1)]
    assert list(tone.values.items()) == [("b", 3), ("a", 1)]
    assert (tone.confidence, tone.answer_mass) == (0.75, 0.5)
    assert (tone.order_flips, tone.label_flips, tone.cut) == (1, 1, 1)
    assert (help_.order_flips, help_.label_flips, help_.cut) == (None, None, 0)


def test_the_tallies_of_a_finished_run_are_kept_until_a_verdict_comes(tmp_path, monkeypatch):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(0, "tone"), judged(1, "tone", Status.TRUNCATED)])
        store.finish()
        counted = store.tallies()
    with monkeypatch.context() as patched:
        patched.setattr(RunStore, "_tally", lambda *_: pytest.fail("verdicts were counted"))
        with RunStore.open(tmp_path, CONFIG) as store:
            assert store.tallies() == counted
    with RunStore.open(tmp_path, CONFIG) as store:
        assert (store.kept(), store.kept(retry_failed=False)) == (1, 2)
        assert store.pending("tone", [(1, "r1")], retry_failed=False) == [False]
        assert store.tallies() == counted
        store.save([judged(1, "tone")])
        assert store.tallies()[0].statuses == {"ok": 2}
    with RunStore.open(tmp_path, CONFIG) as store:
        assert store.tallies()[0].statuses == {"ok": 2}


def test_tallies_that_do_not_fit_the_verdicts_are_counted_anew(tmp_path):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(0, "tone"), judged(1, "tone")])
        store.finish()
        store._db.execute("DELETE FROM verdicts WHERE position = 0")
        store._db.commit()
    with RunStore.open(tmp_path, CONFIG) as store:
        assert store.tallies()[0].rows == 1


@pytest.mark.parametrize("kept", [None, 5, "x", "[5]", "[{}]", '[{"metric": "tone"}]'])
def test_tallies_that_are_damaged_are_counted_anew(tmp_path, kept):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(place, metric) for place in (0, 1) for metric in CONFIG["metrics"]])
        store.finish()
    with closing(sqlite3.connect(tmp_path / "verdicts.db")) as db, db:
        db.executescript("DROP TABLE summary; CREATE TABLE summary (tallies TEXT);")
        db.execute("INSERT INTO summary VALUES (?)", (kept,))
    with RunStore.open(tmp_path, CONFIG) as store:
        assert [tally.rows for tally in store.tallies()] == [2, 2]


def test_a_database_whose_own_words_are_damaged_is_named(tmp_path):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(0, "tone")])
    path = tmp_path / "verdicts.db"
    path.write_bytes(path.read_bytes().replace(b"tableverdicts", b"tableverd\xfccts"))
    with pytest.raises(RunError, match="damaged") as caught, RunStore.open(tmp_path, CONFIG):
        pass
    assert caught.value.path == str(path)


def test_texts_are_not_counted_one_by_one(tmp_path):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([(n, Verdict(f"r{n}", "tone", Status.OK, value=f"Text {n}.")) for n in range(9)])
        store.save([(9, Verdict("r9", "help", Status.OK, value=4, score=4.0))])
        tone, help_ = store.tallies()
    assert (tone.ok, tone.values) == (9, {})
    assert help_.values == {"4": 1}


def test_a_chunk_is_saved_whole_or_not_at_all(tmp_path):
    with RunStore.open(tmp_path, CONFIG) as store:
        with pytest.raises(ValueError, match="JSON compliant"):
            store.save([judged(0, "tone"), (1, Verdict("r1", "tone", Status.OK, score=1e999))])
        assert store.tallies()[0].rows == 0


def test_a_verdict_of_an_unknown_metric_is_refused(tmp_path):
    with (
        RunStore.open(tmp_path, CONFIG) as store,
        pytest.raises(ValueError, match="'other' is not a metric of this run"),
    ):
        store.save([judged(0, "other")])


def test_another_id_in_the_same_place_is_noticed(tmp_path):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(3, "tone")])
        with pytest.raises(RunChanged, match="row 3 of the data was 'r3' and is now 'other'"):
            store.pending("tone", [(3, "other")])


def test_a_killed_run_ends_like_one_that_was_not(tmp_path):
    with RunStore.open(tmp_path / "whole", CONFIG) as store:
        assert judge_all(store) == 2 * ROWS
        store.finish()
    with other_process(tmp_path / "killed", "judge_all(store)") as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < ROWS // 2:
            pass
        process.send_signal(signal.SIGKILL)
    with RunStore.open(tmp_path / "killed", CONFIG) as store:
        assert 0 < judge_all(store) <= 2 * ROWS - ROWS // 2
        store.finish()
        verdicts = list(store.verdicts())
    expected = [(f"r{place}", metric) for place, metric in product(range(ROWS), CONFIG["metrics"])]
    assert [(verdict.id, verdict.metric) for verdict in verdicts] == expected
    for name in ("verdicts.jsonl", "verdicts.parquet"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_torn_end_of_the_log_costs_whole_chunks_only(tmp_path):
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        judge_all(store, 500)
        shutil.copytree(tmp_path / "run", tmp_path / "torn")
    log = tmp_path / "torn" / "verdicts.db-wal"
    os.truncate(log, log.stat().st_size - 20_000)
    with RunStore.open(tmp_path / "torn", CONFIG) as store:
        redone = judge_all(store, 500)
        assert 0 < redone < 1000
        assert redone % CHUNK == 0
        assert len(list(store.verdicts())) == 1000


# Settings


def test_the_configuration_is_recorded(tmp_path):
    config = {**CONFIG, "info": {"host": "a"}, "name": "très"}
    RunStore.open(tmp_path, config).close()
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert json.loads(text) == config
    assert "très" in text


def test_info_may_change(tmp_path):
    begun(tmp_path, {**CONFIG, "info": {"host": "a"}})
    RunStore.open(tmp_path, {**CONFIG, "info": {"host": "b", "version": 2}}).close()
    assert json.loads((tmp_path / "run.json").read_text())["info"] == {"host": "a"}


def test_values_that_json_spells_alike_are_no_change(tmp_path):
    begun(tmp_path, {**CONFIG, "labels": ("a", "b"), "steps": {1: "x"}})
    RunStore.open(tmp_path, {**CONFIG, "labels": ["a", "b"], "steps": {"1": "x"}}).close()


def test_every_changed_setting_is_named_with_both_values(tmp_path):
    prompt = "Judge the answer below by the rules that follow. " * 5
    old = {"metrics": {"tone": {"user": prompt + "Be strict."}}, "seed": 1, "labels": ["a", "b"]}
    new = {"metrics": {"tone": {"user": prompt + "Be kind."}}, "seed": True, "labels": ["b", "a"]}
    begun(tmp_path, {**old, "gone": {"deep": None}, "same": 1})
    with pytest.raises(RunChanged) as caught:
        RunStore.open(tmp_path, {**new, "came": 0.5, "same": 1})
    lines = caught.value.problem.splitlines()[1:]
    assert lines == [
        '  metrics.tone.user: …les that follow. Be strict." -> …les that follow. Be kind."',
        "  seed: 1 -> true",
        '  labels: ["a", "b"] -> ["b", "a"]',
        "  gone.deep: null -> (absent)",
        "  came: (absent) -> 0.5",
    ]
    assert "new folder" in caught.value.hint
    assert caught.value.path == str(tmp_path)


def test_long_values_are_shortened(tmp_path):
    begun(tmp_path, {**CONFIG, "text": "a" * 1000})
    with pytest.raises(RunChanged) as caught:
        RunStore.open(tmp_path, {**CONFIG, "text": "b" * 1000})
    assert len(caught.value.problem) < 250


def test_a_start_that_judged_nothing_holds_nobody_to_its_settings(tmp_path):
    RunStore.open(tmp_path, {**CONFIG, "data": "d2"}).close()
    with RunStore.open(tmp_path, {**CONFIG, "seed": 1}) as store:
        store.bind({"dtype": "float16"})
    with RunStore.open(tmp_path, CONFIG) as store:
        store.bind({"dtype": "float32"})
    recorded = json.loads((tmp_path / "run.json").read_text())
    assert recorded == {**CONFIG, "resolved": {"dtype": "float32"}}


def test_a_refused_start_frees_the_folder(tmp_path):
    begun(tmp_path, CONFIG)
    with pytest.raises(RunChanged):
        RunStore.open(tmp_path, {**CONFIG, "data": "d2"})
    RunStore.open(tmp_path, CONFIG).close()


# One process at a time


def test_a_second_process_is_refused_until_the_first_has_ended(tmp_path):
    with other_process(tmp_path, "print('ready', flush=True); time.sleep(60)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(RunLocked) as caught:
            RunStore.open(tmp_path, CONFIG)
        assert f"process {process.pid} on {socket.gethostname()}" in caught.value.problem
        process.send_signal(signal.SIGKILL)
        process.wait()
        with RunStore.open(tmp_path, CONFIG):
            holder = f"process {os.getpid()} on {socket.gethostname()}\n"
            assert (tmp_path / "lock").read_text() == holder


def test_the_same_process_cannot_open_a_folder_twice(tmp_path):
    with (
        RunStore.open(tmp_path, CONFIG),
        pytest.raises(RunLocked, match=f"process {os.getpid()} on "),
    ):
        RunStore.open(tmp_path, CONFIG)


def test_asking_who_holds_a_folder_keeps_no_run_out(tmp_path):
    assert holder(tmp_path) is None
    with RunStore.open(tmp_path, CONFIG):
        assert holder(tmp_path) == f"process {os.getpid()} on {socket.gethostname()}"
    assert holder(tmp_path) is None
    with (tmp_path / "lock").open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        Timer(0.02, asking.close).start()
        RunStore.open(tmp_path, CONFIG).close()


def test_no_shared_memory_is_needed(tmp_path):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(0, "tone")])
        assert not (tmp_path / "verdicts.db-shm").exists()


# Finishing


def test_finish_writes_both_files_and_marks_the_run(tmp_path):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(1, "tone"), judged(0, "tone")])
        assert not store.finished
        store.finish()
        assert store.finished
    lines = (tmp_path / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    assert [Verdict.from_json(line).id for line in lines] == ["r0", "r1"]
    assert pq.read_table(tmp_path / "verdicts.parquet").column("id").to_pylist() == ["r0", "r1"]
    with RunStore.open(tmp_path, CONFIG) as store:
        assert store.finished


def test_finish_does_nothing_where_nothing_changed(tmp_path):
    outputs = [tmp_path / "verdicts.jsonl", tmp_path / "verdicts.parquet"]
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(0, "tone")])
        store.finish()
        before = [path.stat().st_ino for path in outputs]
        os.utime(outputs[0], (1, 1))
        store.finish()
        assert [path.stat().st_ino for path in outputs] == before
        assert outputs[0].stat().st_mtime == 1


@pytest.mark.parametrize("name", ["verdicts.jsonl", "verdicts.parquet"])
def test_finish_writes_an_output_that_is_gone(tmp_path, name):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(0, "tone")])
        store.finish()
        (tmp_path / name).unlink()
        store.finish()
    assert (tmp_path / name).exists()


def test_a_new_verdict_makes_the_outputs_out_of_date(tmp_path):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(0, "tone", Status.ENGINE_ERROR)])
        store.finish()
        store.save([judged(0, "tone")])
        assert not store.finished
        store.finish()
    assert json.loads((tmp_path / "verdicts.jsonl").read_text())["status"] == "ok"


# Reading back


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda line: line[:-1] + b', "mood": 1}', "unknown: mood"),
        (lambda line: b'{"value": "good"}', "missing or unknown: answer_mass, confidence"),
        (lambda line: line.replace(b'"id": "r1"', b'"id": 1'), "id is of type int"),
        (lambda line: line.replace(b'"score": null', b'"score": true'), "score is of type bool"),
        (lambda line: line.replace(b'"score": null', b'"score": NaN'), "NaN"),
        (lambda line: line.replace(b'"metadata": {}', b'"metadata": []'), "metadata is of"),
        (lambda line: line.replace(b'ies": null', b'ies": {"a": "b"}'), "a probability is of"),
        (lambda line: line.replace(b'"ok"', b'"great"'), "'great' is not a valid Status"),
        (lambda line: line.replace(b'"good"', b'"\xff"'), "can't decode byte 0xff"),
        (lambda line: b"[]", "not list"),
        (lambda line: line + line, "Extra data"),
        (lambda line: line.replace(b'"good"', rb'"\uD800"'), "surrogates not allowed"),
        (
            lambda line: line.replace(b'"output_tokens": ', b'"output_tokens": 9' + b"0" * 20),
            "range",
        ),
        (lambda line: line.replace(b'"score": null', b'"score": 1' + b"0" * 30), "range"),
        (lambda line: line[:-20], "Expecting"),
        (lambda line: b"", "Expecting value"),
        (lambda line: b'{"id":' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_verdict_is_named_wherever_it_is_read(tmp_path, change, says):
    with RunStore.open(tmp_path, CONFIG) as store:
        store.save([judged(0, "tone"), judged(1, "tone")])
        store.finish()
    path = tmp_path / "verdicts.jsonl"
    first, second = path.read_bytes().splitlines()
    assert [verdict.id for verdict in read_verdicts(tmp_path)] == ["r0", "r1"]
    path.write_bytes(first + b"\n" + change(second) + b"\n")
    with pytest.raises(RunError, match="damaged: ") as caught:
        list(read_verdicts(tmp_path))
    assert (caught.value.path, caught.value.line) == (str(path), 2)
    assert says in caught.value.problem
    path.unlink()
    with RunStore.open(tmp_path, CONFIG) as store:
        damaged = change(second).decode(errors="surrogateescape").replace("\udcff", "\0")
        store._db.execute("UPDATE verdicts SET verdict = ? WHERE position = 1", (damaged,))
        with pytest.raises(RunError, match="damaged: "):
            store.finish()
    assert not path.exists()


def test_what_cannot_be_read_is_not_said_to_be_unwritable(tmp_path):
    with pytest.raises(RunError, match="no finished verdicts"):
        list(read_verdicts(tmp_path))
    (tmp_path / "verdicts.jsonl").mkdir()
    with pytest.raises(RunError, match="cannot be read: Is a directory"):
        list(read_verdicts(tmp_path))
    begun(tmp_path / "run", CONFIG)
    (tmp_path / "run" / "run.json").unlink()
    (tmp_path / "run" / "run.json").mkdir()
    with pytest.raises(RunError, match="cannot be read: Is a directory"):
        RunStore.open(tmp_path / "run", CONFIG)


# Folders and disks that cannot be used


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match="holds other files and no run"):
        RunStore.open(tmp_path, CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_start_that_was_killed_at_once_is_no_obstacle(tmp_path):
    (tmp_path / "lock").touch()
    (tmp_path / "run.json.partial").write_text('{"metr')
    RunStore.open(tmp_path, CONFIG).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "run.json", "verdicts.db"]


def test_other_files_beside_a_run_do_no_harm(tmp_path):
    RunStore.open(tmp_path, CONFIG).close()
    (tmp_path / "notes.txt").touch()
    RunStore.open(tmp_path, CONFIG).close()


@pytest.mark.parametrize("content", [b'{"metrics": ', b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_configuration_is_named(tmp_path, content):
    begun(tmp_path, CONFIG)
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunError, match=": damaged: ") as caught:
        RunStore.open(tmp_path, CONFIG)
    assert caught.value.path == str(tmp_path / "run.json")


def test_verdicts_without_their_configuration_are_not_used(tmp_path):
    begun(tmp_path, CONFIG)
    (tmp_path / "run.json").unlink()
    with pytest.raises(RunError, match="is missing") as caught:
        RunStore.open(tmp_path, CONFIG)
    assert caught.value.path == str(tmp_path / "run.json")


def test_a_database_that_is_none_is_named(tmp_path):
    RunStore.open(tmp_path, CONFIG).close()
    (tmp_path / "verdicts.db").write_bytes(b"no database" * 1000)
    with pytest.raises(RunError, match=": damaged: ") as caught:
        RunStore.open(tmp_path, CONFIG)
    assert caught.value.path == str(tmp_path / "verdicts.db")


def test_a_database_damaged_inside_is_named(tmp_path):
    with RunStore.open(tmp_path, CONFIG) as store:
        judge_all(store, 200)
    database = tmp_path / "verdicts.db"
    content = bytearray(database.read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)
    database.write_bytes(content)
    with (
        pytest.raises(RunError, match=": damaged: ") as caught,
        RunStore.open(tmp_path, CONFIG) as s,
    ):
        list(s.verdicts())
    assert caught.value.path == str(database)


def test_a_database_that_another_program_holds_is_named(tmp_path, monkeypatch):
    RunStore.open(tmp_path, CONFIG).close()
    connect = sqlite3.connect
    monkeypatch.setattr("sqlite3.connect", lambda path, **given: connect(path, timeout=0, **given))
    other = connect(tmp_path / "verdicts.db")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(RunError, match="cannot be used: database is locked"):
        RunStore.open(tmp_path, CONFIG)
    other.close()


def test_a_path_that_cannot_be_a_folder_is_named(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match="cannot be written") as caught:
            RunStore.open(folder, CONFIG)
        assert "choose a folder" in caught.value.hint


def test_a_folder_that_may_not_be_written_is_named(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir(mode=0o555)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere")
    with pytest.raises(RunError, match="Permission denied"):
        RunStore.open(folder, CONFIG)


def test_a_full_disk_keeps_what_was_saved_and_the_run_goes_on_later(small_disk):
    folder = small_disk / "run"
    with RunStore.open(folder, CONFIG) as store:
        with pytest.raises(RunError, match="cannot be written: database or disk is full") as caught:
            judge_all(store)
        assert "free some space" in caught.value.hint
        saved = sum(tally.rows for tally in store.tallies())
        assert 0 < saved < 2 * ROWS
        assert saved % CHUNK == 0
    subprocess.run(["mount", "-o", "remount,size=32m", str(small_disk)], check=True)
    with RunStore.open(folder, CONFIG) as store:
        assert judge_all(store) == 2 * ROWS - saved
        store.finish()
    assert pq.read_table(folder / "verdicts.parquet").num_rows == 2 * ROWS


def test_a_disk_that_fills_while_finishing_leaves_no_half_file(small_disk):
    folder = small_disk / "run"
    with RunStore.open(folder, CONFIG) as store:
        judge_all(store, 400)
    filler = small_disk / "filler"
    with RunStore.open(folder, CONFIG) as store:
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(b"x" * 2**21)
        with pytest.raises(RunError, match="No space left") as caught:
            store.finish()
        assert "free some space" in caught.value.hint
        assert not store.finished
    assert not list(folder.glob("verdicts.[jp]*"))
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=32m", str(small_disk)], check=True)
    with RunStore.open(folder, CONFIG) as store:
        store.finish()
        assert store.finished


def test_a_disk_that_is_full_from_the_start_is_named(small_disk):
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filler").write_bytes(b"x" * 2**21)
    with pytest.raises(RunError, match="No space left"):
        RunStore.open(small_disk / "run", CONFIG)
