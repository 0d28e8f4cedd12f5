"""A run read back, finished or not, in Python."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

import localjudge
from localjudge.errors import RunError
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
    assert (ids(label="x"), ids(label="3"), ids(label="None")) == ("a", "b", "")
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
