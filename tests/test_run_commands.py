"""The commands that read a run, as a person types them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from localjudge.records import Status, Verdict
from localjudge.store import RunStore

VERDICTS = [
    Verdict(
        "a", "tone", Status.OK, value="good", label="good", probabilities={"good": 1, "bad": 0}
    ),
    Verdict("b", "tone", Status.OK, value="bad", label="bad"),
]


@pytest.fixture
def folder(tmp_path):
    """A run that was stopped behind two of its three rows."""
    config = {"metrics": {"tone": "1"}, "data": {"rows": 3, "digest": "d"}}
    with RunStore.open(tmp_path / "run", config) as store:
        store.save(enumerate(VERDICTS))
    return tmp_path / "run"


def localjudge(*arguments):
    command = [sys.executable, "-m", "localjudge", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_label_that_there_is_not_is_an_error_that_names_those_that_there_are(folder):
    done = localjudge("show", folder, "--label", "great")
    assert (done.returncode, done.stdout) == (1, "")
    assert "label: is no answer of this run: 'great'" in done.stderr
    assert "good, bad" in done.stderr
    assert (
        localjudge("show", folder, "--label", "good", "--below", "0.1").stdout
        == "no verdict fits\n"
    )


def test_what_a_stopped_run_has_is_exported_and_its_counts_are_told(folder, tmp_path):
    done = localjudge("export", folder, "--out", tmp_path / "out.jsonl")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'out.jsonl'}\n")
    assert done.stderr == "the run is unfinished: 2 of 3 verdicts are there\n"
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("name", ["run.json", "progress.json"])
@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"metrics": 5, "state": 7}'])
def test_no_damaged_file_gives_a_traceback(folder, tmp_path, name, content):
    record = {"state": "stopped", "error": None, "updated": 1, "done": 1, "total": 2}
    record |= {"judged": 1, "failed": 0, "seconds": 0.5}
    (folder / "progress.json").write_text(json.dumps(record))
    (folder / name).write_text(content)
    out = tmp_path / "out.csv"
    for arguments in (
        ["show", folder],
        ["status", folder],
        ["diff", folder, folder],
        ["export", folder, "--out", out],
        ["export", folder, "--join", out],
    ):
        done = localjudge(*arguments)
        assert "Traceback" not in done.stderr
        concerned = (arguments[0] == "status") == (name == "progress.json")
        if concerned:
            assert done.returncode == 1
            assert f"{folder / name}: damaged" in done.stderr
            assert "hint: " in done.stderr
