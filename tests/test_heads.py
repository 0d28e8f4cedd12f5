"""Fitted judges: fitted on labels, kept in files that are checked, and judging in a run."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from localjudge.cli import app
from localjudge.engines.base import Failure
from localjudge.engines.scripted import ScriptedEngine
from localjudge.errors import ConfigError, DataError, RunChanged
from localjudge.head_fitting import fit_head
from localjudge.heads import Head
from localjudge.judge import Judge
from localjudge.metrics import classifier, scorer
from localjudge.records import Status
from localjudge.run import run_file
from localjudge.runs import read_verdicts

TONE = classifier("tone", {"glad": "", "sad": ""}, inputs=["text"], user="{text}")
GRADE = scorer("grade", {1: "", 2: "", 3: ""}, inputs=["text"], user="{text}")


class Seeing(ScriptedEngine):
    """Hidden states that hold the number in a row's text, among noise."""

    def __init__(self, told: float = 4.0) -> None:
        super().__init__()
        self.told = told
        self.asked = 0

    def embed(self, prompts):
        self.asked += len(prompts)
        states = super().embed(prompts)
        for prompt, state in zip(prompts, states, strict=True):
            text = self.tokenizer.decode(list(prompt)).rpartition("> row ")[2]
            state[3] += self.told * int(text.split()[1])
        return states


@pytest.fixture
def write(tmp_path):
    def write(rows, labels, name="rows.jsonl", **columns):
        path = tmp_path / name
        lines = [
            {"id": f"id {n}", "text": f"row {n} {n % labels} x", "label": f"class {n % labels}"}
            | {key: values[n] for key, values in columns.items()}
            for n in range(rows)
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write


@pytest.fixture
def fit(toy):
    def fit(metric, data, engine=None, **options):
        engine = engine or Seeing()
        names = [str(value) for value in metric.answers.values]
        mapping = {f"class {place}": name for place, name in enumerate(names)}
        return fit_head(
            metric,
            data,
            model=toy,
            map_labels=mapping,
            open_judge=lambda *_, **__: Judge(engine),
            **options,
        )

    return fit


def test_a_head_tells_rows_apart_that_the_judge_does_not(fit, write):
    fitted = fit(TONE, write(120, 2))
    assert fitted.worth_it
    assert fitted.figures["fitted"]["kappa"].low > 0.7
    assert fitted.figures["raw"]["kappa"].value < 0.3
    assert fitted.head.facts.counts == {"glad": 60, "sad": 60}
    assert list(fitted.curve) == [25, 50]


def test_a_scale_is_fitted_too(fit, write):
    fitted = fit(GRADE, write(120, 3))
    assert fitted.figures["fitted"]["kappa_quadratic"].low > 0.7


def test_states_that_say_nothing_are_not_worth_a_head(fit, write):
    fitted = fit(TONE, write(80, 2), Seeing(told=0.0))
    assert not fitted.worth_it
    assert fitted.figures["fitted"]["kappa"].value < 0.4


def test_rows_of_one_group_do_not_vouch_for_each_other(fit, write):
    """Each text is in ten rows with one label; the states tell the text, and nothing else."""

    class Remembering(Seeing):
        def embed(self, prompts):
            texts = [self.tokenizer.decode(list(p)).rpartition("> row ")[2] for p in prompts]
            seeds = [int(text.split()[0]) // 10 for text in texts]
            return [np.random.default_rng(s).normal(size=16).astype(np.float32) for s in seeds]

    random = np.random.default_rng(3)
    label = random.permutation([0, 1] * 6)
    rows = write(120, 2, label=[f"class {label[n // 10]}" for n in range(120)],
                 doc=[f"doc {n // 10}" for n in range(120)])  # fmt: skip
    assert fit(TONE, rows, Remembering()).worth_it
    assert not fit(TONE, rows, Remembering(), group_column="doc").worth_it


@pytest.mark.parametrize(("rows", "labels"), [(12, 2), (60, 1)])
def test_too_few_labels_are_refused_before_the_model_is_loaded(fit, write, rows, labels):
    engine = Seeing()
    with pytest.raises(DataError, match="too few labels to fit tone: glad"):
        fit(TONE, write(rows, labels), engine)
    assert engine.asked == 0


# Files


@pytest.fixture
def saved(fit, write, tmp_path):
    head = fit(TONE, write(120, 2)).head
    head.save(tmp_path / "head")
    return head, tmp_path / "head"


def test_what_is_saved_gives_the_same_answers_and_holds_no_row(saved):
    head, folder = saved
    loaded = Head.load(folder)
    states = ScriptedEngine().embed([[1, 2, 3], [4]])
    assert loaded.choose(states) == head.choose(states)
    assert "row 7" not in (folder / "head.json").read_text()
    assert "id 7" not in (folder / "head.json").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["head.json", "head.safetensors"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "head.json").write_text("{}"),
        lambda folder: (folder / "head.json").write_text("[" * 100_000),
        lambda folder: (folder / "head.json").unlink(),
        lambda folder: (folder / "head.safetensors").unlink(),
        lambda folder: (folder / "head.safetensors").write_bytes(b"\x80\x04."),
        lambda folder: change(folder, weights=lambda each: each * np.nan),
        lambda folder: change(folder, weights=lambda each: each[:-1]),
        lambda folder: change(folder, spread=lambda each: each * 0),
        lambda folder: change(folder, mean=lambda each: each.astype(np.float32)),
        lambda folder: change(folder, offsets=lambda each: each[:1]),
    ],
)
def test_a_damaged_head_is_refused(saved, damage):
    _, folder = saved
    damage(folder)
    with pytest.raises((DataError, Exception), match="head") as caught:
        Head.load(folder)
    assert type(caught.value).__module__ == "localjudge.errors"


def change(folder, **changes):
    """Change the numbers, and the digest of them in head.json too."""
    import hashlib

    from safetensors.numpy import load, save

    tensors = load((folder / "head.safetensors").read_bytes())
    data = save({
        name: np.ascontiguousarray(changes[name](each)) if name in changes else each
        for name, each in tensors.items()
    })  # fmt: skip
    (folder / "head.safetensors").write_bytes(data)
    facts = json.loads((folder / "head.json").read_text())
    facts["tensors"] = hashlib.sha256(data).hexdigest()
    (folder / "head.json").write_text(json.dumps(facts))


def test_a_state_that_is_no_number_is_a_failure(saved):
    head, _ = saved
    state = np.zeros(16, dtype=np.float32)
    broken = [state, np.full(16, math.nan, dtype=np.float32), np.zeros(3, dtype=np.float32)]
    results = head.choose([*broken, Failure("too hot")])
    assert [isinstance(each, Failure) for each in results] == [False, True, True, True]


# Runs


@pytest.fixture
def judge_run(tmp_path, toy):
    def judge_run(metric, data, heads, engine=None, **options):
        return run_file(
            [metric],
            data,
            model=toy,
            out=tmp_path / "run",
            engine="transformers",
            heads=heads,
            open_judge=lambda *_, **__: Judge(engine or Seeing()),
            **options,
        )

    return judge_run


def test_a_run_is_judged_by_the_head(saved, write, judge_run, tmp_path):
    _, folder = saved
    rows = write(60, 2, name="others.jsonl")
    assert judge_run(TONE, rows, [folder]).failed == 0
    verdicts = list(read_verdicts(tmp_path / "run"))
    right = [v.value == ("glad", "sad")[n % 2] for n, v in enumerate(verdicts)]
    assert sum(right) >= 57
    for verdict in verdicts:
        assert verdict.metadata["judged_by"] == "head"
        assert verdict.answer_mass is None
        assert sum(verdict.probabilities.values()) == pytest.approx(1)


def test_rows_that_are_like_none_in_training_are_counted(saved, write, judge_run, tmp_path):
    class Foreign(Seeing):
        def embed(self, prompts):
            return [state * 9 for state in super().embed(prompts)]

    _, folder = saved
    result = judge_run(TONE, write(40, 2, name="others.jsonl"), [folder], Foreign())
    assert result.tallies[0].beyond == 40
    assert all(v.metadata["beyond_training"] for v in read_verdicts(tmp_path / "run"))


def test_rows_that_are_like_those_in_training_are_not(saved, write, judge_run):
    _, folder = saved
    assert judge_run(TONE, write(120, 2, name="others.jsonl"), [folder]).tallies[0].beyond <= 2


def test_a_row_whose_state_is_broken_costs_only_itself(saved, write, judge_run, tmp_path):
    class Broken(Seeing):
        def embed(self, prompts):
            states = super().embed(prompts)
            texts = [self.tokenizer.decode(list(prompt)) for prompt in prompts]
            return [s * math.nan if "row 5 " in t else s
                    for t, s in zip(texts, states, strict=True)]  # fmt: skip

    _, folder = saved
    assert judge_run(TONE, write(20, 2, name="others.jsonl"), [folder], Broken()).failed == 1
    [failed] = [v for v in read_verdicts(tmp_path / "run") if v.status is not Status.OK]
    assert failed.id == "id 5" and "not finite" in failed.error


def test_the_head_of_another_metric_or_model_is_refused(saved, write, judge_run):
    head, folder = saved
    rows = write(20, 2, name="others.jsonl")
    with pytest.raises(ConfigError, match="heads for tone, and metrics grade"):
        judge_run(GRADE, rows, [folder])
    changed = classifier("tone", {"glad": "so", "sad": ""}, inputs=["text"], user="{text}")
    with pytest.raises(ConfigError, match="the metric's text or answers"):
        judge_run(changed, rows, [folder])
    with pytest.raises(ConfigError, match="another judge: model: "):
        head.check(TONE, head.facts.judged_by | {"model": "another"})


def test_a_head_does_not_go_with_explanations(saved, write, judge_run):
    _, folder = saved
    with pytest.raises(ConfigError, match="a head decides in one reading"):
        judge_run(TONE, write(20, 2), [folder], options={"explain": True})


def test_a_run_goes_on_with_its_own_head_only(saved, fit, write, judge_run, tmp_path):
    _, folder = saved
    rows = write(20, 2, name="others.jsonl")
    judge_run(TONE, rows, [folder])
    fit(TONE, write(100, 2)).head.save(tmp_path / "other")
    with pytest.raises(RunChanged, match="heads"):
        judge_run(TONE, rows, [tmp_path / "other"])
    with pytest.raises(RunChanged, match="heads"):
        judge_run(TONE, rows, [])


def test_the_commands_on_a_real_model(toy, write, tmp_path):
    """A random model tells rows apart whose whole text is one of two."""
    rows = write(60, 2, label=[("toxic", "non-toxic")[n % 2] for n in range(60)])
    fitted = CliRunner().invoke(
        app,
        ["fit", "toxicity", "--data", str(rows), "--model", str(toy), "--engine", "transformers",
         "--map", "text=label", "--out", str(tmp_path / "head")],
    )  # fmt: skip
    assert fitted.exit_code == 0, fitted.output
    judged = CliRunner().invoke(
        app,
        ["run", "toxicity", "--data", str(rows), "--model", str(toy), "--engine", "transformers",
         "--map", "text=label", "--head", str(tmp_path / "head"), "--out", str(tmp_path / "run")],
    )  # fmt: skip
    assert judged.exit_code == 0, judged.output
    for number, verdict in enumerate(read_verdicts(tmp_path / "run")):
        assert verdict.value == ("toxic", "non-toxic")[number % 2]
