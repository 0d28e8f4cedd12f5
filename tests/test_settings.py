"""A start with other settings is refused, and what was set otherwise is named as people set it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from localjudge.errors import RunChanged
from localjudge.metrics import Example, classifier
from localjudge.metrics import scorer as scale
from tests.test_run import TONE, never, start

ROWS = [{"id": f"r{i}", "key": f"k{i}", "output": f"text {i}", "other": "x"} for i in range(5)]


@pytest.fixture
def file(tmp_path, toy):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    start(tmp_path, path, TONE, model=toy)
    return path


def refusal(tmp_path, toy, file, metric=TONE, **settings):
    with pytest.raises(RunChanged) as caught:
        start(tmp_path, file, metric, model=toy, open_judge=never, **settings)
    return caught.value.problem


LABELS = {"good": "pleased", "bad": "not"}


def tone(labels=LABELS, **parts):
    parts = {"inputs": {"text": "output"}, "user": "Text:\n{text}"} | parts
    return classifier("tone", labels, **parts)


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        (tone(user="The text:\n{text}"), 'metrics.tone.user: "Text:\\n{text}" -> "The text'),
        (tone({"good": "glad", "bad": "not"}), "metrics.tone.answers.labels: "),
        (tone({"bad": "not", "good": "pleased"}), "metrics.tone.answers.labels: "),
        (tone(definition="Decide."), 'metrics.tone.definition: (absent) -> "Decide."'),
        (tone(steps=["Read."]), 'metrics.tone.steps: (absent) -> ["Read."]'),
        (tone(notes=["Mind."]), "metrics.tone.notes: "),
        (tone(direction="maximize"), 'metrics.tone.direction: "neutral" -> "maximize"'),
        (tone(examples=[Example({"text": "a"}, "So.", "good")]), "metrics.tone.examples: "),
        (
            scale("tone", {1: "a", 2: "b"}, inputs={"text": "output"}, user="Text:\n{text}"),
            "answers",
        ),
    ],
)
def test_the_part_of_a_metric_that_is_another_is_named(tmp_path, toy, file, metric, says):
    problem = refusal(tmp_path, toy, file, metric)
    assert says in problem
    assert metric.digest not in problem


def test_of_a_run_that_does_not_know_its_metric_the_hash_is_told(tmp_path, toy, file):
    path = tmp_path / "run" / "run.json"
    settings = json.loads(path.read_text())
    for known in ({}, {"metrics": 5}, {"metrics": {"tone": []}}, None):
        path.write_text(json.dumps(settings | {"info": known}))
        assert TONE.digest[:20] in refusal(tmp_path, toy, file, tone(steps=["Read."]))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"id_column": "key"}, 'id_column (--id-column): "id" -> "key"'),
        ({"limit": 3}, "limit (--limit): null -> 3"),
        ({"mapping": {"text": "other"}}, 'data.columns.tone.text (--map): "output" -> "other"'),
    ],
)
def test_the_option_that_makes_other_data_of_them_is_named(tmp_path, toy, file, settings, says):
    problem = refusal(tmp_path, toy, file, **settings)
    assert says in problem
    assert "digest" not in problem
    assert len(problem.splitlines()) == 2


def test_other_data_are_said_to_be_others(tmp_path, toy, file):
    file.write_text(file.read_text().replace("text 3", "text_3"))
    problem = refusal(tmp_path, toy, file)
    assert "data.digest" in problem
    assert "--" not in problem


def test_what_does_not_change_a_metric_changes_no_run(tmp_path, toy, file):
    same = replace(TONE, description="Another line for people.", path=file)
    assert start(tmp_path, file, same, model=toy, open_judge=never).judged == 0
