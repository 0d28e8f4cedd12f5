"""An engine that dies is opened again; what was finished stays, and a deadly prompt is found."""

from __future__ import annotations

import os
import signal

import pytest

from localjudge.answers import Scale
from localjudge.encoding import PromptEncoder
from localjudge.engines.base import Choice
from localjudge.engines.scripted import ScriptedEngine
from localjudge.engines.supervised import SupervisedEngine
from localjudge.errors import EngineError
from localjudge.judge import Judge
from localjudge.metrics import classifier
from localjudge.records import Status
from localjudge.tree import AnswerTree

TONE = classifier("tone", {"good": "pleased", "bad": "not"}, inputs=["text"], user="{text}")


class Mortal(ScriptedEngine):
    """Dies of prompts that hold the word poison, and where `dies` says so."""

    opened: list[Mortal]

    def __init__(self, dies=lambda batch: False):
        def die_of(prompt):
            if "poison" in prompt:
                raise EngineError("segmentation fault")

        def choose(prompt, size):
            die_of(prompt)
            return [0.9, 0.1] if "fine" in prompt else [0.1, 0.9]

        def write(prompt):
            die_of(prompt)
            return '{"output": "good"}'

        super().__init__(choose, write)
        self.dies = dies
        self.batches: list[int] = []
        self.closed = False

    def choose(self, prompts, trees):
        assert not self.closed
        self.batches.append(len(prompts))
        if self.dies(prompts):
            raise EngineError("out of memory")
        return super().choose(prompts, trees)

    def close(self):
        self.closed = True


def supervised(dies=lambda batch: False) -> tuple[SupervisedEngine, list[Mortal]]:
    opened: list[Mortal] = []

    def open_engine():
        assert all(engine.closed for engine in opened), "two engines at once"
        opened.append(Mortal(dies))
        return opened[-1]

    return SupervisedEngine(open_engine), opened


def judged(engine, texts):
    return list(Judge(engine).run(TONE, [{"text": text} for text in texts]))


def test_a_deadly_row_is_an_engine_error_and_all_others_are_judged(caplog):
    engine, opened = supervised()
    texts = [f"fine {i}" if i % 2 else f"sour {i}" for i in range(1000)]
    texts[300] = "poison"
    verdicts = judged(engine, texts)
    assert [v.status for v in verdicts].count(Status.OK) == 999
    assert verdicts[300].status is Status.ENGINE_ERROR
    assert "segmentation fault" in verdicts[300].error
    wanted = ["good" if i % 2 else "bad" for i in range(1000)]
    wanted[300] = None
    assert [v.value for v in verdicts] == wanted
    assert len(opened) <= 5
    assert "segmentation fault" in caplog.text


def test_two_deadly_rows_next_to_each_other_are_both_found():
    engine, _ = supervised()
    texts = [f"fine {i:03}" for i in range(40)] + ["poison 1", "poison 2"]
    verdicts = judged(engine, texts)
    assert [v.status for v in verdicts] == [Status.OK] * 40 + [Status.ENGINE_ERROR] * 2


def test_a_death_by_the_size_of_a_batch_costs_no_row():
    engine, opened = supervised(lambda batch: len(batch) > 20)
    verdicts = judged(engine, [f"fine {i}" for i in range(200)])
    assert all(v.status is Status.OK for v in verdicts)
    assert len(opened) == 2
    assert max(opened[1].batches) <= 20


def test_a_death_that_does_not_repeat_costs_no_row_even_if_it_was_alone():
    deaths = iter([True])
    engine, opened = supervised(lambda batch: next(deaths, False))
    [verdict] = judged(engine, ["fine"])
    assert verdict.status is Status.OK
    assert len(opened) == 2


def test_what_was_finished_is_not_asked_again():
    asked = []

    def dies(batch):
        asked.extend(map(tuple, batch))
        return False

    engine, _ = supervised(dies)
    verdicts = judged(engine, ["aa", "poison", *(f"z{i}" for i in range(500))])
    assert sum(v.status is Status.OK for v in verdicts) == 501
    # Once in the whole call, once in a batch or twice beside the deadly one.
    assert max(asked.count(prompt) for prompt in asked) <= 5


def test_writing_is_supervised_too():
    engine, _ = supervised()
    judge = Judge(engine, decoding="guided")
    rows = [{"text": "poison" if i == 7 else f"row {i}"} for i in range(20)]
    verdicts = list(judge.run(TONE, rows))
    assert [i for i, v in enumerate(verdicts) if v.status is Status.ENGINE_ERROR] == [7]


def test_an_engine_that_only_dies_is_given_up():
    engine, opened = supervised(lambda batch: True)
    with pytest.raises(EngineError, match=r"in a row.*out of memory"):
        judged(engine, [f"fine {i}" for i in range(100)])
    assert len(opened) == 6


def test_an_engine_that_dies_again_and_again_is_given_up_although_it_gets_on():
    engine, opened = supervised()
    with pytest.raises(EngineError, match="20 times"):
        for start in range(0, 5000, 100):
            judged(engine, [f"{'poison' if i == 50 else 'fine'} {start + i}" for i in range(100)])
    assert len(opened) == 20


def test_an_engine_that_cannot_be_opened_again_is_an_error():
    opened = []

    def open_engine():
        if opened:
            raise EngineError("the GPU is taken")
        opened.append(Mortal())
        return opened[0]

    with pytest.raises(EngineError, match="the GPU is taken"):
        judged(SupervisedEngine(open_engine), ["poison", "fine"])


def test_it_passes_for_the_engine_that_it_holds():
    engine, opened = supervised()
    for name in ("name", "tokenizer", "context_length", "chunk_rows", "fingerprint"):
        assert getattr(engine, name) == getattr(opened[0], name)
    engine.close()
    assert opened[0].closed


@pytest.mark.vllm
def test_vllms_own_process_may_be_killed(toy):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    psutil = pytest.importorskip("psutil")
    from localjudge.engines.vllm import VllmEngine

    engine = SupervisedEngine(
        lambda: VllmEngine(
            toy,
            own_process=True,
            engine_args={"kv_cache_memory_bytes": "50_000_000", "enforce_eager": "true"},
        )
    )
    children = psutil.Process().children(recursive=True)
    frame = PromptEncoder(engine.tokenizer).frame("Judge the text.", "Text:\n")
    tree = AnswerTree.build(frame.content, Scale(1, 10).documents, frame.context)
    prompts = [tree.extend(prompt) for prompt in frame.encode([f"row {i}" for i in range(50)])]
    before = engine.choose(prompts, [tree] * len(prompts))
    [core] = [child for child in children if "EngineCore" in child.name()]
    os.kill(core.pid, signal.SIGKILL)
    after = engine.choose(prompts, [tree] * len(prompts))
    assert all(isinstance(choice, Choice) for choice in before)
    assert [choice.log_probs for choice in after] == [
        pytest.approx(choice.log_probs, abs=1e-5) for choice in before
    ]
    children += psutil.Process().children(recursive=True)
    engine.close()
    alive = psutil.wait_procs(
        [c for c in children if "resource_tracker" not in " ".join(cmdline(c))], timeout=10
    )[1]
    assert not alive


def cmdline(process) -> list[str]:
    import psutil

    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_a_closed_engine_is_not_opened_again():
    engine, opened = supervised()
    engine.close()
    for call in (
        lambda: engine.choose([[1]], [AnswerTree(0, 0, (), ())]),
        lambda: engine.write([[1]], "a", 5),
        lambda: engine.think([[1]], 5),
    ):
        with pytest.raises(EngineError, match="closed"):
            call()
    assert len(opened) == 1


def test_thinking_is_supervised_too():
    engine, opened = supervised()
    tokenizer = engine.tokenizer
    prompts = [tokenizer.encode(text) for text in ("fine", "poison", "well")]
    results = engine.think(prompts, 40)
    assert [type(result).__name__ for result in results] == ["Draft", "Failure", "Draft"]
    assert results[0].text == '{"output": "good"}'
    assert len(opened) > 1
