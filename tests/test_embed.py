"""Hidden states: what the last layer reads, the same by every engine, batch and prefix."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from localjudge.engines.base import Failure
from localjudge.engines.scripted import ScriptedEngine
from localjudge.engines.supervised import SupervisedEngine
from localjudge.engines.transformers import TransformersEngine
from localjudge.errors import EngineError, ModelError
from localjudge.models import find_model


def prompts(tokenizer, count: int, seed: int = 0) -> list[list[int]]:
    source = random.Random(seed)
    ids = [i for i in tokenizer.get_vocab().values() if i < 250]
    shared = source.choices(ids, k=40)
    return [shared + source.choices(ids, k=source.randint(1, 30)) for _ in range(count)]


def cosines(one, other) -> list[float]:
    pairs = zip(one, other, strict=True)
    return [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in pairs]


@pytest.fixture(scope="module")
def engine(toy):
    engine = TransformersEngine(toy, device="cpu", dtype="float32", batch_tokens=200)
    yield engine
    engine.close()


def test_a_state_is_what_the_last_layer_turns_into_logits(engine):
    asked = prompts(engine.tokenizer, 9)
    states = engine.embed(asked)
    weight = engine._head.weight.detach().float().numpy()
    with torch.inference_mode():
        for prompt, state in zip(asked, states, strict=True):
            assert (state.dtype, state.shape) == (np.float32, (weight.shape[1],))
            logits = engine._model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1]
            assert np.allclose(weight @ state, logits.float().numpy(), atol=1e-4)


def test_batch_and_order_do_not_matter(engine):
    asked = prompts(engine.tokenizer, 13)
    together = engine.embed(asked)
    alone = [engine.embed([prompt])[0] for prompt in asked]
    assert min(cosines(together, alone)) > 0.99999
    again = engine.embed(asked[::-1])[::-1]
    assert min(cosines(together, again)) > 0.99999


def test_reading_states_leaves_answers_as_they_are(engine):
    asked = prompts(engine.tokenizer, 3)
    with torch.inference_mode():
        prefix = engine._shared_prefix(asked)
        before = engine._logits(asked, prefix)
        engine.embed(asked)
        after = engine._logits(asked, prefix)
    assert torch.equal(before, after)


def test_a_prompt_that_cannot_be_read_costs_only_itself(engine):
    asked = prompts(engine.tokenizer, 3)
    states = engine.embed([asked[0], [], asked[1], [10**9], asked[2]])
    assert [isinstance(state, Failure) for state in states] == [False, True, False, True, False]
    assert min(cosines([states[0], states[2], states[4]], engine.embed(asked))) > 0.99999


def test_an_engine_that_dies_reading_states_is_opened_again():
    opened = []

    class Dying(ScriptedEngine):
        def embed(self, prompts):
            if len(opened) == 1:
                raise EngineError("dead")
            return super().embed(prompts)

    def open_engine():
        opened.append(Dying())
        return opened[-1]

    asked = [[1, 2], [3]]
    states = SupervisedEngine(open_engine).embed(asked)
    assert len(opened) == 2
    assert np.array_equal(states, ScriptedEngine().embed(asked))


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("name", "dtype", "least"),
    [
        ("toy", "float32", 0.99999),
        pytest.param("smollm2-135m", "bfloat16", 0.999, marks=pytest.mark.model),
    ],
)
def test_both_engines_read_the_same_states(name, dtype, least, toy):
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from localjudge.engines.vllm import VllmEngine

    try:
        folder = toy if name == "toy" else find_model(name).path
    except ModelError as error:
        pytest.skip(str(error))
    ours = TransformersEngine(folder, device="cpu", dtype=dtype)
    args = {"kv_cache_memory_bytes": "200000000", "enforce_eager": "true"}
    theirs = VllmEngine(folder, dtype=dtype, engine_args=args, embed=True)
    try:
        asked = prompts(ours.tokenizer, 24)
        one, other = ours.embed(asked), theirs.embed(asked)
        assert {state.dtype for state in other} == {np.dtype(np.float32)}
        assert min(cosines(one, other)) > least
        sizes = [np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(one, other, strict=True)]
        assert sizes == pytest.approx([1.0] * 24, abs=0.02)  # as it is, not normalised
        with pytest.raises(EngineError, match="cannot answer"):
            theirs.think(asked[:1], 1)
    finally:
        theirs.close()
        ours.close()
