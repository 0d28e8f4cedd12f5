"""The question before the first row: an engine that does not keep to the answers is found."""

from __future__ import annotations

import json
import math

import pytest

from localjudge.canary import check_engine
from localjudge.encoding import PromptEncoder
from localjudge.engines.base import Choice, Draft, Failure
from localjudge.engines.scripted import ScriptedEngine
from localjudge.engines.transformers import TransformersEngine
from localjudge.errors import EngineError
from localjudge.judge import Judge
from localjudge.metrics import classifier
from localjudge.run import run_file

TONE = classifier("tone", {"good": "", "bad": ""}, inputs={"text": "output"}, user="{text}")


def check(engine, *, guided):
    check_engine(engine, PromptEncoder(engine.tokenizer), guided=guided)


class Reads(ScriptedEngine):
    """Returns the same log-probabilities for every prompt."""

    def __init__(self, *log_probs):
        super().__init__()
        self.log_probs = log_probs

    def choose(self, prompts, trees):
        return [Choice(self.log_probs) for _ in prompts]


@pytest.mark.parametrize(
    "said",
    [
        "A river is water that flows to the sea.",
        "zebra",
        '{"output":\n\n"zebra"}',
        '{"output": "zebra"} is my answer',
        Draft('{"output": "zebra"}', (1,), "length"),
        Draft('{"output": "zeb', (1,), "stop"),
        "",
    ],
)
def test_an_engine_that_does_not_apply_the_constraint_is_found(said):
    with pytest.raises(EngineError, match="does not keep to the allowed answers"):
        check(ScriptedEngine(write=lambda _: said), guided=True)


def test_an_engine_that_cannot_compile_the_constraint_is_found():
    engine = ScriptedEngine(write=lambda _: Failure("cannot convert the token �?"))
    with pytest.raises(EngineError, match="cannot convert the token") as caught:
        check(engine, guided=True)
    assert "another engine" in caught.value.hint


@pytest.mark.parametrize(
    "log_probs",
    [(math.nan, -1.0), (-math.inf, -1.0), (0.4, 0.6), (-1.0,), (-1.0, -2.0, -3.0)],
)
def test_an_engine_that_returns_no_probabilities_is_found(log_probs):
    with pytest.raises(EngineError, match="not two log-probabilities"):
        check(Reads(*log_probs), guided=False)


def test_an_engine_that_fails_on_the_question_is_found():
    with pytest.raises(EngineError, match="no kernel"):
        check(ScriptedEngine(lambda *_: Failure("no kernel")), guided=False)


def test_a_sound_engine_passes(toy):
    check(ScriptedEngine(write=lambda _: '{"output": "quartz"}'), guided=True)
    check(ScriptedEngine(), guided=False)
    engine = TransformersEngine(toy, device="cpu")
    for guided in (False, True):
        check(engine, guided=guided)


def test_a_run_stops_before_its_first_row(tmp_path, toy):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"output": "a"}) + "\n")
    asked = []

    def ignores_constraints(prompt):
        asked.append(prompt)
        return "A river is water. Positive, I would say."

    with pytest.raises(EngineError, match="allowed answers"):
        run_file(
            [TONE],
            tmp_path / "rows.jsonl",
            model=toy,
            out=tmp_path / "run",
            engine="transformers",
            options={"decoding": "guided"},
            open_judge=lambda *_, **__: Judge(
                ScriptedEngine(write=ignores_constraints), decoding="guided"
            ),
        )
    assert len(asked) == 1
