"""A run from file to files: checked before the model is loaded, resumable, one verdict a row."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from localjudge.engines.base import Failure
from localjudge.engines.scripted import ScriptedEngine
from localjudge.errors import (
    ConfigError,
    DataError,
    LocaljudgeError,
    ModelError,
    RunChanged,
    RunError,
)
from localjudge.judge import Judge
from localjudge.library import find_metric
from localjudge.metrics import classifier
from localjudge.records import Verdict
from localjudge.run import run_file
from localjudge.runs import open_run, read_verdicts

TONE = classifier(
    "tone", {"good": "pleased", "bad": "not"}, inputs={"text": "output"}, user="Text:\n{text}"
)
HELP = classifier(
    "help", {"yes": "helps", "no": "does not"}, inputs={"answer": "output"}, user="{answer}"
)


def scripted(*args, **kwargs):
    """Open a judge without a model, whatever model and engine were asked for."""

    def open_judge(*_, engine, settings, **options):
        return Judge(ScriptedEngine(*args, **kwargs), **options)

    return open_judge


def never(*_, **__):
    pytest.fail("the model was loaded")


def data(path: Path, count: int = 50) -> Path:
    file = path / "rows.jsonl"
    rows = [{"id": f"r{i}", "output": f"text {i}"} for i in range(count)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def start(tmp_path: Path, file: Path, *metrics, **settings):
    settings = {"open_judge": scripted()} | settings
    return run_file(
        metrics or (TONE, HELP),
        file,
        model=settings.pop("model"),
        out=tmp_path / "run",
        **settings,
    )


def lines(tmp_path: Path) -> list[str]:
    return (tmp_path / "run" / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()


def test_every_row_and_metric_has_one_verdict_in_the_order_of_the_data(tmp_path, toy):
    seen = []
    result = start(tmp_path, data(tmp_path), model=toy, on_progress=seen.append)
    verdicts = [Verdict.from_json(line) for line in lines(tmp_path)]
    assert [(v.id, v.metric) for v in verdicts] == [
        (f"r{i}", metric) for i in range(50) for metric in ("tone", "help")
    ]
    assert (result.rows, result.judged, result.failed) == (50, 100, 0)
    assert (seen[-1].done, seen[-1].total) == (100, 100)
    assert list(read_verdicts(result.folder)) == verdicts


def test_a_finished_run_does_not_load_the_model_again(tmp_path, toy):
    file = data(tmp_path)
    start(tmp_path, file, model=toy)
    before = lines(tmp_path)
    result = start(tmp_path, file, model=toy, open_judge=never)
    assert (result.judged, result.rows) == (0, 50)
    assert lines(tmp_path) == before


def test_failed_rows_are_judged_again(tmp_path, toy):
    file = data(tmp_path, 10)

    def choose(prompt, size):
        return Failure("no memory") if "> text 3" in prompt else [0.6, 0.4]

    result = start(tmp_path, file, model=toy, open_judge=scripted(choose))
    assert result.failed == 2
    assert [json.loads(line)["status"] for line in lines(tmp_path)].count("engine_error") == 2
    asked = []
    result = start(
        tmp_path, file, model=toy, open_judge=scripted(lambda p, n: asked.append(p) or [0.6, 0.4])
    )
    assert (result.failed, result.judged) == (0, 2)
    assert len(asked) == 2 + 1  # and the canary
    assert len(lines(tmp_path)) == 20


def test_failed_rows_are_left_if_they_are_not_to_be_judged_again(tmp_path, toy):
    file = data(tmp_path, 10)

    def choose(prompt, size):
        return Failure("no memory") if "> text 3" in prompt else [0.6, 0.4]

    start(tmp_path, file, TONE, model=toy, open_judge=scripted(choose))
    before = lines(tmp_path)
    result = start(tmp_path, file, TONE, model=toy, retry_failed=False, open_judge=never)
    assert (result.judged, result.failed, lines(tmp_path)) == (0, 1, before)
    with closing(sqlite3.connect(tmp_path / "run" / "verdicts.db")) as db, db:
        db.execute("DELETE FROM verdicts WHERE position = 5")
    result = start(tmp_path, file, TONE, model=toy, retry_failed=False)
    assert (result.judged, result.failed) == (1, 1)
    assert start(tmp_path, file, TONE, model=toy).failed == 0


@pytest.mark.parametrize(("allowed", "kept"), [(0, 2), (1, 4), (3, 8)])
def test_too_many_failures_stop_the_run_and_what_was_judged_stays(tmp_path, toy, allowed, kept):
    def open_judge(*_, engine, settings, **options):
        odd = re.compile(r"> text \d?[13579]\n")
        engine = ScriptedEngine(lambda p, _: Failure("dead") if odd.search(p) else [0.6, 0.4])
        engine.chunk_rows = 2
        return Judge(engine, **options)

    file = data(tmp_path, 20)
    with pytest.raises(RunError, match=f"more than the {allowed} allowed") as caught:
        start(tmp_path, file, TONE, model=toy, open_judge=open_judge, max_failures=allowed)
    assert f"({allowed + 1} engine_error)" in caught.value.problem
    assert "dead" in caught.value.problem
    assert "same command goes on" in (caught.value.hint or "")
    assert not (tmp_path / "run" / "verdicts.jsonl").exists()
    result = start(tmp_path, file, TONE, model=toy, max_failures=allowed)
    assert (result.failed, result.judged) == (0, 20 - kept // 2)


def test_as_many_failures_as_are_allowed_do_not_stop_a_run(tmp_path, toy):
    def choose(prompt, size):
        return Failure("no memory") if "> text 3" in prompt else [0.6, 0.4]

    file = data(tmp_path, 10)
    settings = {"model": toy, "open_judge": scripted(choose)}
    assert start(tmp_path, file, TONE, max_failures=1, **settings).failed == 1
    with pytest.raises(ConfigError, match="negative"):
        start(tmp_path, file, TONE, max_failures=-1, **settings)


def test_missing_inputs_and_long_inputs_are_counted_and_the_rest_is_judged(tmp_path, toy):
    file = tmp_path / "rows.csv"
    file.write_text("id,output\n1,fine\n2,\n3," + "x" * 9000 + "\n4,None\n")
    result = start(tmp_path, file, TONE, model=toy, open_judge=scripted(context_length=4000))
    [tally] = result.tallies
    assert dict(tally.statuses) == {"ok": 2, "missing_input": 1, "input_too_long": 1}
    assert result.failed == 2


@pytest.mark.parametrize(
    ("content", "settings", "error", "says"),
    [
        ('{"id": 1, "output": "a"}\n{"id": "1", "output": "b"}\n', {}, DataError, "line 1"),
        ('{"id": 1, "Output ": "a"}\n', {}, DataError, "did you mean 'Output '"),
        ('{"id": 1, "output": "a"}\n{"id": 2, "outp', {}, DataError, ":2"),
        ('{"id": 1, "output": "a"}\n', {"mapping": {"txt": "output"}}, ConfigError, "txt"),
        ('{"id": 1, "output": "a"}\n', {"mapping": {"text": "nowhere"}}, DataError, "nowhere"),
        ('{"id": 1, "output": "a"}\n', {"id_column": "key"}, DataError, "key"),
        ('{"id": 1, "output": "a"}\n', {"model": "no-such/model"}, ModelError, "no-such/model"),
        ("", {}, DataError, "no rows"),
        ('{"output": "a"}\n', {"prompt_mode": "Chat"}, ConfigError, "did you mean 'chat'"),
        ('{"output": "a"}\n', {"options": {"decoding": "x"}}, ConfigError, "direct, guided"),
    ],
)
def test_what_is_wrong_is_found_before_the_model_is_loaded(
    tmp_path, toy, content, settings, error, says
):
    file = tmp_path / "rows.jsonl"
    file.write_text(content)
    with pytest.raises(error) as caught:
        start(tmp_path, file, TONE, **{"model": toy, "open_judge": never} | settings)
    assert says in str(caught.value)


def test_one_metric_twice_is_refused(tmp_path, toy):
    with pytest.raises(ConfigError, match="given twice"):
        start(tmp_path, data(tmp_path), TONE, TONE, model=toy, open_judge=never)


def test_a_mapping_serves_the_metrics_that_have_the_input(tmp_path, toy):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"reply": "a", "output": "b"}\n')
    asked = []
    start(
        tmp_path,
        file,
        model=toy,
        mapping={"text": "reply"},
        open_judge=scripted(lambda prompt, size: asked.append(prompt) or [0.5, 0.5]),
    )
    _canary, text, answer = asked
    assert "> a" in text
    assert "> b" in answer


@pytest.mark.parametrize("content", ["", '{"id": "r0", "output": "other"}\n', "BAD\n"])
def test_a_file_that_changes_before_it_is_judged_stops_the_run(tmp_path, toy, content):
    file = data(tmp_path, 10)
    before = file.read_text()

    def open_judge(*arguments, **settings):
        file.write_text(content)
        return scripted()(*arguments, **settings)

    with pytest.raises(DataError):
        start(tmp_path, file, model=toy, open_judge=open_judge)
    assert not (tmp_path / "run" / "verdicts.jsonl").exists()
    file.write_text(before)
    assert start(tmp_path, file, model=toy).judged == 20


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("UPDATE verdicts SET position = 999 WHERE position = 3", "row 999"),
        ("UPDATE verdicts SET position = -1 WHERE position = 3", "row -1"),
        ("UPDATE verdicts SET metric = 'mood' WHERE metric = 'tone'", "'mood'"),
    ],
)
def test_verdicts_that_are_not_of_this_run_stop_it(tmp_path, toy, sql, says):
    file = data(tmp_path, 10)
    start(tmp_path, file, model=toy)
    with closing(sqlite3.connect(tmp_path / "run" / "verdicts.db")) as db, db:
        db.execute(sql)
    with pytest.raises(RunError, match=says):
        start(tmp_path, file, model=toy, open_judge=never)


def changed_metric(file, toy):
    other = classifier("tone", {"good": "glad", "bad": "not"}, inputs=["output"], user="{output}")
    return file, [other, HELP], {"model": toy}


def changed_data(file, toy):
    file.write_text(file.read_text().replace("text 7", "text seven"))
    return file, [TONE, HELP], {"model": toy}


def changed_decoding(file, toy):
    return file, [TONE, HELP], {"model": toy, "options": {"decoding": "guided"}}


def changed_limit(file, toy):
    return file, [TONE, HELP], {"model": toy, "limit": 5}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (changed_metric, "metrics.tone"),
        (changed_data, "data.digest"),
        (changed_decoding, "options.decoding"),
        (changed_limit, r"limit \(--limit\)"),
    ],
)
def test_a_run_with_other_settings_is_refused_by_name(tmp_path, toy, change, says):
    file = data(tmp_path)
    start(tmp_path, file, model=toy)
    before = lines(tmp_path)
    file, metrics, settings = change(file, toy)
    with pytest.raises(RunChanged, match=says):
        start(tmp_path, file, *metrics, open_judge=never, **settings)
    assert lines(tmp_path) == before


def test_another_model_is_refused(tmp_path, toy, chatml):
    from tests.conftest import toy_model

    file = data(tmp_path)
    start(tmp_path, file, model=toy)
    other = toy_model(tmp_path / "other", chatml, seed=1)
    with pytest.raises(RunChanged, match="model"):
        start(tmp_path, file, model=other, open_judge=never)


def test_another_precision_is_refused_once_it_is_known(tmp_path, toy):
    file = data(tmp_path, 5)

    def resolved(dtype):
        def open_judge(*_, **__):
            engine = ScriptedEngine()
            engine.fingerprint = {"engine": "scripted", "dtype": dtype}
            return Judge(engine)

        return open_judge

    start(tmp_path, file, model=toy, open_judge=resolved("float32"))
    with closing(sqlite3.connect(tmp_path / "run" / "verdicts.db")) as db, db:
        db.execute("DELETE FROM verdicts WHERE position = 3")  # something is left to judge
    with pytest.raises(RunChanged, match="dtype"):
        start(tmp_path, file, model=toy, open_judge=resolved("bfloat16"))


SLOW = """
import sys, time
from tests.test_run import HELP, TONE, scripted
from localjudge.run import run_file
def choose(prompt, size):
    time.sleep(0.004)
    return [0.5 + len(prompt) % 7 / 20, 0.2]
file, model, out = sys.argv[1:]
run_file([TONE, HELP], file, model=model, out=out, open_judge=scripted(choose))
"""


def test_a_killed_run_ends_like_one_that_was_not(tmp_path, toy, monkeypatch):
    monkeypatch.setattr(ScriptedEngine, "chunk_rows", 20)
    code = SLOW.replace(
        "def choose",
        "scripted(None)\nfrom localjudge.engines.scripted import "
        "ScriptedEngine\nScriptedEngine.chunk_rows = 20\ndef choose",
        1,
    )
    file = data(tmp_path, 300)
    command = [sys.executable, "-c", code, str(file), str(toy)]
    subprocess.run([*command, str(tmp_path / "whole")], check=True)
    for _ in range(3):
        process = subprocess.Popen([*command, str(tmp_path / "run")])
        wal = tmp_path / "run" / "verdicts.db-wal"
        size = wal.stat().st_size if wal.exists() else 0
        while process.poll() is None and (not wal.exists() or wal.stat().st_size <= size):
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not (tmp_path / "run" / "verdicts.jsonl").exists()
    subprocess.run([*command, str(tmp_path / "run")], check=True)
    whole = (tmp_path / "whole" / "verdicts.jsonl").read_bytes()
    assert (tmp_path / "run" / "verdicts.jsonl").read_bytes() == whole
    assert whole.count(b"\n") == 600


def test_every_error_of_a_run_is_one_of_ours(tmp_path, toy):
    file = data(tmp_path)
    with pytest.raises(LocaljudgeError):
        start(tmp_path, file / "nothing", model=toy)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("years of work")
    with pytest.raises(LocaljudgeError, match="other files"):
        start(tmp_path, file, model=toy, open_judge=never)


OPTIONAL = classifier(
    "right",
    {"yes": "right", "no": "wrong"},
    inputs={"answer": "output", "truth": "reference"},
    user="{answer}\n{truth}",
)
OPTIONAL = replace(OPTIONAL, optional=("truth",))


def test_a_column_is_required_unless_its_input_is_optional_and_not_mapped(tmp_path, toy):
    file = data(tmp_path, 3)
    assert start(tmp_path, file, OPTIONAL, model=toy).failed == 0
    with pytest.raises(DataError, match="'gold'"):
        start(tmp_path, file, OPTIONAL, model=toy, mapping={"truth": "gold"}, open_judge=never)


def test_a_path_is_read_from_nested_values(tmp_path, toy):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": 1, "attributes": {"output": {"value": "deep"}}}\n')
    asked = []
    judge = scripted(lambda prompt, _: asked.append(prompt) or [0.6, 0.4])
    mapping = {"text": "attributes.output.value"}
    start(tmp_path, file, TONE, model=toy, mapping=mapping, open_judge=judge)
    assert "> deep\n" in asked[-1]


def test_topics_come_with_each_row_or_with_the_run(tmp_path, toy):
    topic = find_metric("topic")
    file = tmp_path / "rows.jsonl"
    rows = [
        {"id": 1, "input": "q", "output": "a", "choices": ["pets", "tea"]},
        {"id": 2, "input": "q", "output": "a", "choices": '["pets", "tea", "other"]'},
        {"id": 3, "input": "q", "output": "a", "choices": "pets"},
        {"id": 4, "input": "q", "output": "a"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = start(tmp_path, file, topic, model=toy)
    assert dict(result.tallies[0].statuses) == {"ok": 2, "missing_input": 2}
    assert {Verdict.from_json(line).value for line in lines(tmp_path)} <= {
        "pets",
        "tea",
        "other",
        None,
    }
    file.write_text('{"id": 4, "input": "q", "output": "a"}\n')
    with pytest.raises(DataError, match="'choices'"):
        start(tmp_path / "b", file, topic, model=toy, open_judge=never)
    file.write_text('{"id": 4, "input": "q", "output": "a", "meta": {"list": ["pets", "tea"]}}\n')
    mapping = {"choices": "meta.list"}
    result = start(tmp_path / "c", file, topic, model=toy, mapping=mapping)
    assert dict(result.tallies[0].statuses) == {"ok": 1}
    topic = topic.with_labels(["red", "blue"])
    result = start(tmp_path / "b", file, topic, model=toy)
    assert result.failed == 0
    assert set(result.tallies[0].values) <= {"red", "blue", "other"}


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("llm_summarization", {"explain": True}, "answers with text"),
        ("llm_question_clarity", {"permute_labels": 2}, "no list of labels"),
        ("topic", {"permute_labels": 2}, "no list of labels"),
    ],
)
def test_what_cannot_be_asked_is_found_before_the_model_is_loaded(
    tmp_path, toy, name, options, says
):
    with pytest.raises(ConfigError, match=says):
        start(
            tmp_path,
            data(tmp_path),
            find_metric(name),
            model=toy,
            options=options,
            open_judge=never,
        )


def test_the_summary_counts_verdicts_that_hang_on_an_order(tmp_path, toy):
    file = tmp_path / "rows.jsonl"
    file.write_text(
        '{"id": 1, "input": "q", "output_a": "x", "output_b": "y"}\n'
        '{"id": 2, "input": "q", "output_a": "x", "output_b": "x"}\n'
    )
    first_wins = scripted(lambda _, size: [0.7, 0.2, 0.1][:size])
    [pair] = start(
        tmp_path, file, find_metric("pairwise"), model=toy, open_judge=first_wins
    ).tallies
    assert (pair.order_flips, pair.label_flips, dict(pair.values)) == (2, None, {"tie": 2})
    other = start(
        tmp_path / "b",
        data(tmp_path, 4),
        TONE,
        model=toy,
        open_judge=scripted(lambda _p, _n: [0.7, 0.3]),
        options={"permute_labels": 2},
    )
    assert (other.tallies[0].order_flips, other.tallies[0].label_flips) == (None, 4)


def test_the_next_prompts_are_made_while_the_engine_is_at_work(tmp_path, toy):
    made, late = threading.Event(), []

    class Watched(Judge):
        def ask(self, task, rows):
            if rows[0].id == "r4":
                made.set()
            return super().ask(task, rows)

        def answer(self, asked):
            if asked.rows[0].id == "r0" and not made.wait(timeout=20):
                late.append(asked.rows[0].id)
            return super().answer(asked)

    def open_judge(*_, engine, settings, **options):
        engine = ScriptedEngine()
        engine.chunk_rows = 4
        return Watched(engine, **options)

    result = start(tmp_path, data(tmp_path, 9), TONE, model=toy, open_judge=open_judge)
    assert (result.judged, late) == (9, [])


def test_what_goes_wrong_while_prompts_are_made_ends_the_run_with_all_before_it_saved(
    tmp_path, toy
):
    class Failing(Judge):
        def ask(self, task, rows):
            if rows[0].id == "r4":
                raise DataError("gone")
            return super().ask(task, rows)

    def open_judge(*_, engine, settings, **options):
        engine = ScriptedEngine()
        engine.chunk_rows = 4
        return Failing(engine, **options)

    file = data(tmp_path, 9)
    with pytest.raises(DataError, match="gone"):
        start(tmp_path, file, TONE, model=toy, open_judge=open_judge)
    assert start(tmp_path, file, TONE, model=toy).judged == 5


def test_a_finished_run_that_is_gone_on_with_leaves_no_old_files_about(tmp_path, toy):
    file = data(tmp_path, 9)

    def fail_late(prompt, size):
        return Failure("no memory") if "> text 8" in prompt else [0.6, 0.4]

    start(tmp_path, file, TONE, model=toy, open_judge=scripted(fail_late))
    assert (tmp_path / "run" / "verdicts.jsonl").exists()
    with pytest.raises(KeyboardInterrupt):
        start(
            tmp_path,
            file,
            TONE,
            model=toy,
            on_progress=lambda progress: progress.judged and interrupt(),
        )
    assert not (tmp_path / "run" / "verdicts.jsonl").exists()
    assert not (tmp_path / "run" / "verdicts.parquet").exists()
    assert [verdict.status for verdict in open_run(tmp_path / "run").verdicts()] == ["ok"] * 9
    assert start(tmp_path, file, TONE, model=toy).judged == 0
    assert len(lines(tmp_path)) == 9


def interrupt():
    raise KeyboardInterrupt
