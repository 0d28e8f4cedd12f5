"""The check of the data is made once for the same bytes, and for them only."""

from __future__ import annotations

import json
import os

import pytest

from localjudge import data_check
from localjudge.data_check import check_data
from localjudge.errors import DataError, RunChanged
from localjudge.tables import check_table, open_table
from tests.test_run import TONE, data, lines, never, start


@pytest.fixture
def run(tmp_path, toy):
    """A finished run, and its data file."""
    file = data(tmp_path, 10)
    start(tmp_path, file, TONE, model=toy)
    return file


def no_check(monkeypatch):
    monkeypatch.setattr(data_check, "check_table", lambda *_: pytest.fail("rows were checked"))


def test_a_finished_run_on_the_same_bytes_is_not_checked_again(run, tmp_path, toy, monkeypatch):
    before = lines(tmp_path)
    moved = run.rename(tmp_path / "moved.jsonl")
    os.utime(moved, (1, 1))
    no_check(monkeypatch)
    result = start(tmp_path, moved, TONE, model=toy, open_judge=never)
    assert (result.rows, result.judged, lines(tmp_path)) == (10, 0, before)


def test_another_byte_in_a_file_of_the_same_size_and_date_is_found(run, tmp_path, toy):
    facts = run.stat()
    run.write_text(run.read_text().replace("text 7", "text_7"))
    os.utime(run, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert (run.stat().st_size, run.stat().st_mtime_ns) == (facts.st_size, facts.st_mtime_ns)
    with pytest.raises(RunChanged, match=r"data\.digest"):
        start(tmp_path, run, TONE, model=toy, open_judge=never)


def test_the_same_rows_in_other_bytes_are_the_same_data(run, tmp_path, toy):
    rows = [json.loads(line) for line in run.read_text().splitlines()]
    run.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))
    assert start(tmp_path, run, TONE, model=toy, open_judge=never).judged == 0


@pytest.mark.parametrize("change", [{"limit": 9}, {"id_column": "output"}])
def test_the_same_bytes_read_in_another_way_are_checked(run, tmp_path, change):
    other = check_data(open_table(run, **change), ["output"], tmp_path / "run")
    assert other.digest == check_table(open_table(run, **change)).digest


def test_a_column_that_was_not_asked_for_before_is_checked(run, tmp_path):
    with pytest.raises(DataError, match="'gold'"):
        check_data(open_table(run), ["gold"], tmp_path / "run")


def test_rows_that_wait_are_checked_whole(run, tmp_path, monkeypatch):
    known = check_data(open_table(run), ["output"], tmp_path / "run")
    assert known.full().rows == 10
    run.write_text(run.read_text().replace("text 7", "text_7"))
    with pytest.raises(DataError, match="not what an earlier start"):
        known.full()


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"info": []}'])
def test_a_damaged_run_has_no_say(run, tmp_path, content):
    (tmp_path / "run" / "run.json").write_text(content)
    assert check_data(open_table(run), ["output"], tmp_path / "run").rows == 10


def test_a_default_column_that_is_not_there_brings_up_the_mapping(tmp_path, toy):
    (tmp_path / "rows.csv").write_text("id,outputs\n1,x\n")
    with pytest.raises(DataError, match="no such column: 'output'") as caught:
        start(tmp_path, tmp_path / "rows.csv", TONE, model=toy, open_judge=never)
    assert "--map text=outputs" in caught.value.hint
