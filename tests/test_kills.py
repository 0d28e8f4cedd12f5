"""Runs that are killed at random moments; the script takes more of them."""

from __future__ import annotations

import json

from tests.test_benchmarks import run


def test_runs_that_are_killed_end_like_one_that_was_not(tmp_path, toy):
    sizes = ("--kills", "5", "--rows", "400", "--seed", "1")
    lines = run("kills.py", "--model", str(toy), *sizes, home=tmp_path)
    document = json.loads(lines[-1])
    assert document["kills"] == 5
    assert document["rows"] == 400
