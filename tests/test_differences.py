"""Two runs side by side: what was set otherwise, and which rows came out otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localjudge.differences import compare_runs, margin
from localjudge.records import Status, Verdict
from localjudge.runs import open_run
from localjudge.store import RunStore


def verdict(row, value, sure=0.5, metric="tone"):
    probabilities = {value: 0.5 + sure / 2, "other": 0.5 - sure / 2}
    return Verdict(row, metric, Status.OK, value=value, probabilities=probabilities)


FAILED = Verdict("", "tone", Status.ENGINE_ERROR, error="dead")


def run(folder, *verdicts, finish=True, **settings):
    config = {"metrics": {"tone": "1"}, "data": {"digest": "d"}} | settings
    with RunStore.open(folder, config) as store:
        store.save(enumerate(verdicts))
        if finish:
            store.finish()
    return open_run(folder)


def test_counts_and_changes_are_those_of_the_rows_with_one_id(tmp_path):
    old = run(
        tmp_path / "a",
        verdict("same", "x"),
        verdict("near", "x", 0.1),
        verdict("far", "x", 0.9),
        verdict("half", "x", 0.9),
        replace(FAILED, id="mended"),
        replace(FAILED, id="dead"),
        verdict("broken", "x"),
        verdict("gone", "x"),
    )
    new = run(
        tmp_path / "b",
        verdict("come", "x"),
        replace(FAILED, id="broken"),
        verdict("far", "y", 0.8),
        verdict("same", "x", 0.1),
        verdict("half", "y", 0.4),
        verdict("near", "y", 0.8),
        verdict("mended", "x"),
        replace(FAILED, id="dead"),
        finish=False,
    )
    found = compare_runs(old, new, limit=10)
    assert dict(found.counts["tone"]) == {
        **{"same": 1, "changed": 3, "now failed": 1, "no longer failed": 1},
        **{"failed in both": 1, "only in the first": 1, "only in the second": 1},
    }
    shown = [(change.old.id, change.old.value, change.new.value) for change in found.changes]
    assert shown == [("far", "x", "y"), ("half", "x", "y"), ("near", "x", "y")]
    assert [change.margin for change in found.changes] == pytest.approx([0.8, 0.4, 0.1])
    first = compare_runs(old, new, limit=1)
    assert [change.old.id for change in first.changes] == ["far"]


def test_settings_that_are_not_the_same_are_named(tmp_path):
    info = {"started": "1", "data_mark": "a", "versions": {"torch": "2.7"}}
    old = run(tmp_path / "a", verdict("a", "x"), options={"explain": False}, info=info)
    info = {"started": "2", "data_mark": "b", "versions": {"torch": "2.8"}}
    new = run(tmp_path / "b", verdict("a", "x"), options={"explain": True}, info=info)
    assert compare_runs(old, new, limit=1).settings == (
        ("options.explain", "false", "true"),
        ("info.versions.torch", '"2.7"', '"2.8"'),
    )
    assert compare_runs(old, old, limit=1).settings == ()


def test_equal_margins_keep_the_order_of_the_data_and_unknown_ones_come_last(tmp_path):
    ids = ["b", "c", "a"]
    old = run(tmp_path / "a", Verdict("t", "tone", Status.OK, value="x"), *map(at("x"), ids))
    new = run(tmp_path / "b", Verdict("t", "tone", Status.OK, value="y"), *map(at("y"), ids))
    assert [c.old.id for c in compare_runs(old, new, limit=9).changes] == ["b", "c", "a", "t"]
    assert [c.old.id for c in compare_runs(old, new, limit=2).changes] == ["b", "c"]


def at(value):
    return lambda row: verdict(row, value, 0.5)


def test_a_margin_is_the_difference_of_the_two_largest_probabilities():
    several = Verdict("a", "tone", Status.OK, probabilities={"x": 0.2, "y": 0.5, "z": 0.3})
    assert margin(several) == pytest.approx(0.2)
    assert margin(Verdict("a", "tone", Status.OK, probabilities={"x": 1.0})) is None
    assert margin(FAILED) is None
