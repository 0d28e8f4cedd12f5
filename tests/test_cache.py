"""Verdicts across runs: the same question to the same judge is asked once, anything else anew."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from localjudge.cache import VerdictCache, cache_keys
from localjudge.engines.base import Failure
from localjudge.engines.scripted import ScriptedEngine
from localjudge.errors import RunError
from localjudge.judge import Judge
from localjudge.library import find_metric
from localjudge.metrics import classifier
from localjudge.records import Row, Status, Verdict
from localjudge.run import run_file
from localjudge.tasks import Question
from tests.test_run import HELP, TONE, data, scripted

OK = Verdict("a", "tone", Status.OK, value="good", label="good", explanation="é")


def rows(path, *texts):
    path.write_text("".join(json.dumps({"id": f"{i}", "output": t}) + "\n" for i, t in texts))
    return path


def judged(tmp_path, file, out, *, choose=None, **settings):
    """Run with the cache, and return the result and the prompts that the model got."""
    prompts = []

    def answer(prompt, size):
        prompts.append(prompt)
        return choose(prompt) if choose else [0.5 + len(prompt) % 7 / 20, 0.2]

    result = run_file(
        settings.pop("metrics", [TONE, HELP]),
        file,
        out=tmp_path / out,
        cache=tmp_path / "cache",
        **{"open_judge": scripted(answer)} | settings,
    )
    return result, [prompt for prompt in prompts if "> text" in prompt]


def test_what_is_added_to_a_file_is_all_that_the_model_is_asked(tmp_path, toy):
    file = data(tmp_path, 30)
    first, asked = judged(tmp_path, file, "one", model=toy)
    assert (first.judged, first.reused, len(asked)) == (60, 0, 60)
    with file.open("a") as more:
        more.write('{"id": "new", "output": "text new"}\n')
    second, asked = judged(tmp_path, file, "two", model=toy)
    assert (second.judged, second.reused, len(asked)) == (2, 60, 2)
    assert all("> text new" in prompt for prompt in asked)
    without = run_file(
        [TONE, HELP],
        file,
        model=toy,
        out=tmp_path / "three",
        open_judge=scripted(lambda prompt, _: [0.5 + len(prompt) % 7 / 20, 0.2]),
    )
    for name in ("verdicts.jsonl", "verdicts.parquet"):
        assert (second.folder / name).read_bytes() == (without.folder / name).read_bytes()


def test_the_id_of_a_row_is_its_own(tmp_path, toy):
    judged(tmp_path, rows(tmp_path / "a.jsonl", ("x", "text")), "one", model=toy, metrics=[TONE])
    file = rows(tmp_path / "b.jsonl", ("y", "text"), ("z", "text"))
    result, asked = judged(tmp_path, file, "two", model=toy, metrics=[replace(TONE, name="mood")])
    assert (result.reused, asked) == (2, [])
    lines = (result.folder / "verdicts.jsonl").read_text().splitlines()
    found = [Verdict.from_json(line) for line in lines]
    assert [(verdict.id, verdict.metric) for verdict in found] == [("y", "mood"), ("z", "mood")]


def test_rows_without_a_verdict_are_not_kept(tmp_path, toy):
    file = rows(tmp_path / "a.jsonl", (1, "text one"), (2, "text two"), (3, ""))

    def choose(prompt):
        return Failure("no memory") if "text two" in prompt else [0.6, 0.4]

    first, _ = judged(tmp_path, file, "one", model=toy, choose=choose, metrics=[TONE])
    assert (first.judged, first.failed) == (3, 2)
    second, asked = judged(tmp_path, file, "two", model=toy, metrics=[TONE])
    assert (second.reused, second.judged, second.failed) == (1, 2, 1)
    assert ["> text two" in prompt for prompt in asked] == [True]


@pytest.mark.parametrize(
    "change",
    [
        {"options": {"permute_labels": 2}},
        {"prompt_mode": "raw"},
        {"metrics": [classifier("tone", {"good": "glad", "bad": "not"}, inputs={"text": "output"},
                                user="Text:\n{text}")]},
        {"settings": {"engine_args": {"max_num_seqs": "8"}}},
        {"engine_says": {"engine": "scripted", "dtype": "float16"}},
    ],
)  # fmt: skip
def test_anything_that_a_verdict_depends_on_asks_anew(tmp_path, toy, change, monkeypatch):
    file = rows(tmp_path / "a.jsonl", (1, "text one"))
    judged(tmp_path, file, "one", model=toy, metrics=[TONE])
    change = dict(change)
    if fingerprint := change.pop("engine_says", None):

        def open_judge(*_, engine, settings, **options):
            engine = ScriptedEngine()
            engine.fingerprint = fingerprint
            return Judge(engine, **options)

        change["open_judge"] = open_judge
    result, _ = judged(tmp_path, file, "two", model=toy, **{"metrics": [TONE]} | change)
    assert (result.reused, result.judged) == (0, 1)
    result, _ = judged(tmp_path, file, "three", model=toy, metrics=[TONE])
    assert (result.reused, result.judged) == (1, 0)


def test_another_model_asks_anew(tmp_path, toy, chatml):
    from tests.conftest import toy_model

    file = rows(tmp_path / "a.jsonl", (1, "text one"))
    judged(tmp_path, file, "one", model=toy, metrics=[TONE])
    other = toy_model(tmp_path / "other", chatml, seed=1)
    result, _ = judged(tmp_path, file, "two", model=other, metrics=[TONE])
    assert result.reused == 0


def test_prompts_of_known_rows_are_not_made(tmp_path, toy):
    file = data(tmp_path, 5)
    judged(tmp_path, file, "one", model=toy, metrics=[TONE])

    class Lazy(Judge):
        def ask(self, task, rows):
            pytest.fail("a prompt was made")

    def open_judge(*_, engine, settings, **options):
        return Lazy(ScriptedEngine(), **options)

    result, _ = judged(tmp_path, file, "two", model=toy, metrics=[TONE], open_judge=open_judge)
    assert result.reused == 5


def test_the_labels_of_a_row_are_part_of_its_key():
    judge = Judge(ScriptedEngine())
    task = judge.prepare(find_metric("topic"))
    common = {"input": "q", "output": "a"}
    one, two, same, none = cache_keys(
        task,
        [
            Row("1", common | {"choices": ["pets", "tea"]}),
            Row("2", common | {"choices": ["tea", "pets"]}),
            Row("3", common | {"choices": ["pets", "tea"]}),
            Row("4", common | {"choices": "no list"}),
        ],
        {},
    )
    assert one == same != two
    assert none is None


@pytest.mark.parametrize(
    "change",
    [{"swapped": True}, {"values": ("b", "a")}, {"system": "S"}, {"user_head": "H"}, {"body": "B"}],
)
def test_all_of_a_question_is_part_of_its_key(change):
    def key(swapped=False, values=("a", "b"), system="s", user_head="h", body="b"):
        messages = SimpleNamespace(system=system, user_head=user_head)
        variant = SimpleNamespace(swapped=swapped, values=values, messages=messages)
        task = SimpleNamespace(metric=TONE, questions=lambda _: [Question(variant, body)])
        return cache_keys(task, [Row("1", {})], {})

    assert key() == key() != key(**change)


def test_both_orders_of_a_pair_are_in_its_key():
    judge = Judge(ScriptedEngine())
    task = judge.prepare(find_metric("pairwise"))
    texts = {"input": "q", "output_a": "x", "output_b": "y"}
    turned = {"input": "q", "output_a": "y", "output_b": "x"}
    one, two = cache_keys(task, [Row("1", texts), Row("2", turned)], {})
    assert one != two


WRITER = """
import sys
from localjudge.cache import VerdictCache
from localjudge.records import Status, Verdict
folder, start = sys.argv[1], int(sys.argv[2])
with VerdictCache.open(folder) as cache:
    for number in range(start, start + 200):
        verdict = Verdict("a", "tone", Status.OK, value=str(number))
        cache.add([(number.to_bytes(4, "big"), verdict)])
        assert cache.find([number.to_bytes(4, "big")])[0].value == str(number)
"""


def test_two_runs_may_use_one_cache_at_once(tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "cache")]
    writers = [subprocess.Popen([*command, str(start)]) for start in (0, 100)]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    with VerdictCache.open(tmp_path / "cache") as cache:
        found = cache.find([number.to_bytes(4, "big") for number in range(301)])
    assert [verdict.value for verdict in found if verdict] == [str(n) for n in range(300)]


def test_the_folder_is_made_for_this_user_only(tmp_path):
    VerdictCache.open(tmp_path / "deep" / "cache").close()
    assert (tmp_path / "deep" / "cache").stat().st_mode & 0o077 == 0


def test_a_cache_that_cannot_be_used_is_named(tmp_path):
    with VerdictCache.open(tmp_path) as cache:
        cache.add([(b"1", OK), (None, OK), (b"2", Verdict("b", "tone", Status.TRUNCATED))])
        assert cache.find([b"1", None, b"2"]) == [replace(OK, id="", metric=""), None, None]
    path = tmp_path / "verdicts-cache.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE kept SET verdict = '{'")
    with VerdictCache.open(tmp_path) as cache, pytest.raises(RunError, match="damaged") as caught:
        cache.find([b"1"])
    assert caught.value.path == str(path)
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(RunError, match="damaged") as caught:
        VerdictCache.open(tmp_path)
    assert caught.value.path == str(path)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written"):
        VerdictCache.open(tmp_path / "file")


def test_a_cache_that_may_not_be_written_is_named(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o555)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere")
    with pytest.raises(RunError, match="cannot be used"):
        VerdictCache.open(folder)


TAMPERED = [
    {"value": "perfect", "label": "perfect", "confidence": None, "probabilities": None},
    {"value": 1},
    {"value": None},
    {"label": "bad"},
    {"label": None},
    {"score": 1.0},
    {"status": "engine_error"},
    {"probabilities": {"good": 0.5, "bad": 0.5}},
    {"probabilities": {"bad": 0.5, "good": 0.5}},
    {"probabilities": {"good": 1.0}},
    {"probabilities": {"good": 2.0, "bad": -1.0}, "confidence": 2.0},
    {"probabilities": {"good": 0.7, "bad": 0.7}, "confidence": 0.7},
    {"probabilities": None},
]


@pytest.mark.parametrize("change", TAMPERED)
def test_a_verdict_that_the_metric_cannot_give_is_not_taken(tmp_path, toy, change):
    file = rows(tmp_path / "a.jsonl", (1, "text one"))
    judged(tmp_path, file, "one", model=toy, metrics=[TONE])
    path = tmp_path / "cache" / "verdicts-cache.db"
    with closing(sqlite3.connect(path)) as db, db:
        [(text,)] = db.execute("SELECT verdict FROM kept")
        kept = json.loads(text)
        assert (kept["value"], kept["score"]) == ("good", None)
        assert kept["confidence"] != 0.5
        db.execute("UPDATE kept SET verdict = ?", (json.dumps(kept | change),))
    with pytest.raises(RunError, match="damaged") as caught:
        judged(tmp_path, file, "two", model=toy, metrics=[TONE])
    assert caught.value.path == str(path)
    assert "delete the file" in caught.value.hint
    path.unlink()
    assert judged(tmp_path, file, "two", model=toy, metrics=[TONE])[0].judged == 1


def summary(prompt):
    """Go on from where the answer's fixed beginning ends."""
    return ' asked for help."'


@pytest.mark.parametrize("name", ["pairwise", "topic", "llm_summarization", "toxicity"])
def test_what_a_metric_of_any_kind_gave_is_taken_again(tmp_path, toy, name):
    columns = {"input": "q", "output": "a b c", "output_a": "x", "output_b": "y"}
    row = columns | {"choices": ["pets", "tea"], "id": "1"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    metric = find_metric(name)
    judge = scripted(lambda prompt, size: [0.3] * size, summary)
    settings = {"model": toy, "metrics": [metric], "open_judge": judge}
    first, _ = judged(tmp_path, tmp_path / "a.jsonl", "one", **settings)
    if first.failed:
        pytest.fail((first.folder / "verdicts.jsonl").read_text())
    second, _ = judged(tmp_path, tmp_path / "a.jsonl", "two", **settings)
    assert (second.reused, second.judged) == (1, 0)


def test_a_written_text_that_breaks_its_limits_is_not_taken(tmp_path, toy):
    row = {"input": "q", "output": "a", "id": "1"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    judge = scripted(write=summary)
    settings = {"model": toy, "metrics": [find_metric("llm_summarization")], "open_judge": judge}
    judged(tmp_path, tmp_path / "a.jsonl", "one", **settings)
    with closing(sqlite3.connect(tmp_path / "cache" / "verdicts-cache.db")) as db, db:
        db.execute("UPDATE kept SET verdict = replace(verdict, 'for help.', 'so it goes on')")
    with pytest.raises(RunError, match="damaged"):
        judged(tmp_path, tmp_path / "a.jsonl", "two", **settings)


def find_all(folder):
    with VerdictCache.open(folder) as cache:
        cache.find([bytes([n]) for n in range(200)])


def test_a_damaged_cache_may_just_be_deleted(tmp_path):
    path = tmp_path / "verdicts-cache.db"
    with VerdictCache.open(tmp_path) as cache:
        cache.add([(bytes([n]), OK) for n in range(200)])
    for content in (b"no database" * 1000, path.read_bytes()[:4096] + b"x" * 8192):
        path.write_bytes(content)
        with pytest.raises(RunError, match="damaged") as caught:
            find_all(tmp_path)
        assert "delete the file" in caught.value.hint
