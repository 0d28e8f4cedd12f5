"""A run read back, finished or not, in Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import localjudge
from localjudge.differences import compare_runs
from localjudge.errors import ConfigError, RunError
from localjudge.exports import export_run
from localjudge.records import Status, Verdict
from localjudge.runs import matching
from localjudge.store import RunStore
from tests.test_run import TONE, data, start

CONFIG = {"metrics": {"tone": "1"}}
VERDICTS = [
    Verdict("a", "tone", Status.OK, value="x", confidence=0.6, probabilities={"x": 0.6, "y": 0.4}),
    Verdict("b", "tone", Status.OK, value=3, confidence=0.9),
    Verdict("c", "tone", Status.OK, value="y", explanation="Because."),
    Verdict("d", "tone", Status.INVALID_OUTPUT, error="no JSON"),
]


def run(folder, *, finish):
    with RunStore.open(folder, CONFIG) as store:
        store.save(enumerate(VERDICTS))
        if finish:
            store.finish()
    return localjudge.open_run(folder)


@pytest.mark.parametrize("finish", [True, False])
def test_a_run_is_read_back_whether_it_is_finished_or_not(tmp_path, finish):
    opened = run(tmp_path / "run", finish=finish)
    assert opened.finished is finish
    assert opened.settings == CONFIG
    assert list(opened.verdicts()) == VERDICTS
    assert list(opened.verdicts()) == VERDICTS
    frame = opened.to_pandas()
    assert list(frame["id"]) == ["a", "b", "c", "d"]
    dataset = opened.to_dataset()
    assert dataset[1]["value"] == "3"
    run(tmp_path / "other", finish=True)
    assert dataset.data.table.equals(pq.read_table(tmp_path / "other" / "verdicts.parquet"))


def test_reading_leaves_an_unfinished_run_as_it_was(tmp_path):
    opened = run(tmp_path / "run", finish=False)
    list(opened.verdicts())
    for reading in (opened.verdicts(), opened.verdicts()):
        next(reading)
        reading.close()  # left early, so that the folder is free again
    assert json.loads((tmp_path / "run" / "run.json").read_text()) == CONFIG
    with RunStore.open(tmp_path / "run", CONFIG) as store:
        assert list(store.verdicts()) == VERDICTS


def test_the_result_of_a_run_leads_to_its_verdicts(tmp_path, toy):
    result = start(tmp_path, data(tmp_path, 3), TONE, model=toy)
    assert list(result.to_pandas()["id"]) == ["r0", "r1", "r2"]
    assert result.to_dataset().column_names[:3] == ["id", "metric", "status"]


def ids(**wanted):
    return "".join(verdict.id for verdict in matching(VERDICTS, **wanted))


def test_verdicts_are_chosen_by_status_answer_and_confidence():
    assert ids() == "abcd"
    assert ids(status="invalid_output") == "d"
    assert (ids(label="x"), ids(label="3")) == ("a", "b")
    assert (ids(below=0.6), ids(below=0.61), ids(below=1)) == ("", "a", "ab")
    assert ids(label="x", below=0.5) == ""


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(RunError, match="there is no run here") as caught:
        localjudge.open_run(tmp_path)
    assert caught.value.path == str(tmp_path)
    for content in ("{", "{}", '{"metrics": 1}'):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(RunError, match="damaged") as caught:
            localjudge.open_run(tmp_path)
        assert caught.value.path == str(tmp_path / "run.json")


def test_a_label_that_there_is_not_is_named_with_those_that_there_are():
    with pytest.raises(ConfigError) as caught:
        ids(label="z")
    assert (caught.value.field, caught.value.hint) == ("label", "there are: x, y, 3")
    assert ids(label="y", below=0.1) == ""  # there is such an answer, though no row fits
    with pytest.raises(ConfigError, match="no row has an answer"):
        list(matching(VERDICTS[3:], label="x"))


def readings(folder):
    """Return every way of reading the verdicts of a run."""
    return (
        lambda: list(localjudge.open_run(folder).verdicts()),
        lambda: localjudge.open_run(folder).to_pandas(),
        lambda: compare_runs(*[localjudge.open_run(folder)] * 2, limit=1),
        lambda: export_run(folder, folder.parent / "out.csv", wide=True),
    )


@pytest.mark.parametrize("finish", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"[]", b"5", b"{}", b"\xff", b'{"metrics": null}', b'{"metrics": "tone"}'),
        *(b'{"metrics": [1]}', b'{"metrics": {}}', b'{"metrics": [["a"]]}', b"[" * 100_000),
        *(b'{"metrics": {"other": "1"}}', b'{"metrics": ["other", "more"], "info": 5}'),
    ],
)
def test_settings_that_are_damaged_or_of_another_run_are_named(tmp_path, content, finish):
    run(tmp_path / "run", finish=finish)
    (tmp_path / "run" / "run.json").write_bytes(content)
    for reading in readings(tmp_path / "run"):
        with pytest.raises(RunError, match="damaged") as caught:
            reading()
        assert caught.value.path == str(tmp_path / "run" / "run.json")
        assert caught.value.hint


@pytest.mark.parametrize("info", [5, [], {"versions": []}, None])
def test_settings_that_no_reading_needs_may_be_anything(tmp_path, info):
    run(tmp_path / "run", finish=False)
    settings = CONFIG | {"info": info, "data": 5, "options": []}
    (tmp_path / "run" / "run.json").write_text(json.dumps(settings))
    for reading in readings(tmp_path / "run"):
        reading()


def test_where_there_is_no_verdict_yet_reading_says_so_and_makes_nothing(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(CONFIG))
    for reading in readings(folder):
        with pytest.raises(RunError, match="no verdicts yet") as caught:
            reading()
        assert "localjudge status" in caught.value.hint
    assert [path.name for path in folder.iterdir()] == ["run.json"]


def test_reading_changes_no_byte_of_a_run_that_was_killed(tmp_path):
    code = (
        "import os, sys\n"
        "from tests.test_runs import CONFIG, VERDICTS\n"
        "from localjudge.store import RunStore\n"
        "store = RunStore.open(sys.argv[1], CONFIG)\n"
        "store.save(enumerate(VERDICTS))\n"
        "os._exit(9)\n"
    )
    root = str(Path(__file__).parent.parent)
    folder = tmp_path / "run"
    subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env=os.environ | {"PYTHONPATH": root},
        check=False,
    )
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert before["verdicts.db-wal"]
    (folder / "lock").unlink()
    del before["lock"]
    opened = localjudge.open_run(folder)
    first, second = opened.verdicts(), opened.verdicts()  # two readers at once
    assert (next(first), next(second)) == (VERDICTS[0], VERDICTS[0])
    assert list(first) == VERDICTS[1:]
    second.close()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
