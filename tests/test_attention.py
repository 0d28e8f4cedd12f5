"""Attention to a shared beginning: the results of plain attention, and used where it can be."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from localjudge.engines import attention
from localjudge.engines.transformers import TransformersEngine
from tests.test_transformers_engine import WINDOWS, random_model


def log_probs(engine, sequences):
    prefix = engine._shared_prefix(sequences)
    assert prefix.length
    return engine._logits(sequences, prefix).log_softmax(-1)


def plain(folder, sequences):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        rows = [model(torch.tensor([sequence])).logits[0, -1] for sequence in sequences]
    return torch.stack(rows).log_softmax(-1)


@pytest.fixture
def sequences():
    draw = torch.Generator().manual_seed(0)

    def ids(count):
        return torch.randint(20, 200, (count,), generator=draw).tolist()

    beginning = ids(150)
    return [beginning + ids(count) for count in (1, 2, 30, 61)]


@pytest.fixture
def calls(monkeypatch):
    """Count the products with shared keys, and those with a row's own."""
    seen = []
    attend = attention._attend

    def counting(*args, **kwargs):
        seen.append(kwargs.get("is_causal", False))
        return attend(*args, **kwargs)

    monkeypatch.setattr(attention, "_attend", counting)
    return seen


@pytest.mark.parametrize("heads", [4, 2, 1])
def test_one_product_for_all_rows_gives_what_plain_attention_gives(
    chatml, tmp_path, sequences, calls, heads
):
    folder = random_model(
        tmp_path, chatml, "llama", num_attention_heads=4, num_key_value_heads=heads
    )
    engine = TransformersEngine(folder, device="cpu")
    layers = len(engine._model.model.layers)
    calls.clear()
    found = log_probs(engine, sequences)
    # The beginning is computed by itself, with nothing shared before it.
    assert calls == [False, True] * layers
    assert torch.allclose(found, plain(folder, sequences), atol=1e-4)


@pytest.mark.parametrize("kind", WINDOWS)
def test_layers_with_a_window_are_left_to_torch(chatml, tmp_path, sequences, kind):
    folder = random_model(tmp_path, chatml, kind, **WINDOWS[kind])
    engine = TransformersEngine(folder, device="cpu")
    assert torch.allclose(log_probs(engine, sequences), plain(folder, sequences), atol=1e-4)


@pytest.mark.parametrize("fault", ["wrong", "gone"])
def test_where_it_does_not_work_attention_stays_plain(toy, monkeypatch, sequences, fault):
    def broken(query, *args, **kwargs):
        if fault == "gone":
            raise RuntimeError("no such kernel")
        return torch.zeros_like(query), query.new_zeros(query.shape[:-1])

    monkeypatch.setattr(attention, "_attend", broken)
    engine = TransformersEngine(toy, device="cpu")
    assert torch.allclose(log_probs(engine, sequences), plain(toy, sequences), atol=1e-4)


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_no_prompt_is_longer_than_where_positions_begin_to_turn_otherwise(chatml, tmp_path, kind):
    rope = {"rope_type": kind, "rope_theta": 10_000.0, "factor": 8.0}
    rope |= {"original_max_position_embeddings": 64}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4} if kind == "longrope" else {}
    folder = random_model(tmp_path, chatml, "llama", rope_parameters=rope)
    assert TransformersEngine(folder, device="cpu").context_length == 64
