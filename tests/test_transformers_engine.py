"""The transformers engine: exact probabilities, whatever the batch, the prefix and the settings."""

from __future__ import annotations

import json
import random
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from localjudge.answers import Labels, Scale
from localjudge.encoding import PromptEncoder
from localjudge.engines.base import Choice, Draft, Failure
from localjudge.engines.transformers import TransformersEngine
from localjudge.errors import ConfigError, EngineError
from localjudge.tree import AnswerTree

SPACES = {
    "one branch": Labels.of(["positive", "negative", "neutral", "toxic"]),
    "more branches": Labels.of(["very_good", "very_bad", "very", "poor", "pooh"]),
    "scale": Scale(1, 10),
}
WORDS = [
    "the",
    "answer",
    "is",
    "very",
    "good",
    "and",
    "not",
    "toxic",
    "at",
    "all",
    "but",
    "nobody",
    "minds",
    "lazy",
    "dogs",
]


@pytest.fixture(scope="module")
def engine(toy):
    engine = TransformersEngine(toy, device="cpu")
    yield engine
    engine.close()


@pytest.fixture
def frame(engine):
    return PromptEncoder(engine.tokenizer).frame("Judge the text. " * 20, "Text:\n")


def bodies(count: int, seed: int = 0) -> list[str]:
    random.seed(seed)
    return [" ".join(random.choices(WORDS, k=random.randint(1, 60))) for _ in range(count)]


def extended(frame, space, texts):
    tree = AnswerTree.build(frame.content, space.documents, frame.context)
    return [tree.extend(prompt) for prompt in frame.encode(texts)], tree


def plain_log_prob(model, prompt: list[int], path: list[int], token: int) -> float:
    """What transformers itself says, with no padding, no cache and nothing shared."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*prompt, *path]])).logits[0, -1]
    return float(logits.float().log_softmax(-1)[token])


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_the_probabilities_are_the_models_own(engine, frame, toy, space):
    model = AutoModelForCausalLM.from_pretrained(toy).eval()
    prompts, tree = extended(frame, space, bodies(6))
    for prompt, choice in zip(prompts, engine.choose(prompts, [tree] * len(prompts)), strict=True):
        expected = tree.choice(
            [
                [plain_log_prob(model, prompt, [*branch.path], t) for t in branch.tokens]
                for branch in tree.branches
            ]
        )
        assert choice.log_probs == pytest.approx(expected.log_probs, abs=1e-4)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_alone_or_in_a_batch_a_row_gets_the_same_answer(toy, frame, space):
    engine = TransformersEngine(toy, device="cpu", batch_tokens=400)
    prompts, tree = extended(frame, space, ["x", *bodies(40), "y " * 400])
    together = engine.choose(prompts, [tree] * len(prompts))
    for prompt, choice in zip(prompts, together, strict=True):
        [alone] = engine.choose([prompt], [tree])
        assert alone.probabilities == pytest.approx(choice.probabilities, abs=1e-3)
        assert alone.log_probs.index(max(alone.log_probs)) == choice.log_probs.index(
            max(choice.log_probs)
        )


def test_a_prefix_is_computed_once_for_all_batches_of_a_metric(toy, frame):
    engine = TransformersEngine(toy, device="cpu", batch_tokens=200)
    seen = []
    forward = engine._model.forward

    def counting(*args, **kwargs):
        seen.append(kwargs["input_ids"].shape[1])
        return forward(*args, **kwargs)

    engine._model.forward = counting
    head = len(frame.head)
    for seed in range(4):
        prompts, tree = extended(frame, SPACES["one branch"], bodies(8, seed))
        engine.choose(prompts, [tree] * len(prompts))
    assert sum(length >= head for length in seen) == 1
    assert len(seen) > 5


def test_prompts_of_two_metrics_do_not_disturb_each_other(engine, toy):
    encoder = PromptEncoder(engine.tokenizer)
    one = encoder.frame("Judge whether the answer is grounded. " * 10, "Text:\n")
    two = encoder.frame("Judge whether the answer is toxic. " * 12, "Text:\n")
    first, tree = extended(one, SPACES["one branch"], bodies(5))
    second, _ = extended(two, SPACES["one branch"], bodies(5))
    fresh = TransformersEngine(toy, device="cpu")
    for prompts in (first, second, first, second[:1]):
        again = [choice.log_probs for choice in engine.choose(prompts, [tree] * len(prompts))]
        once = [fresh.choose([prompt], [tree])[0].log_probs for prompt in prompts]
        assert again == [pytest.approx(log_probs, abs=1e-4) for log_probs in once]


def test_each_prompt_is_read_by_its_own_tree(engine, frame, toy):
    model = AutoModelForCausalLM.from_pretrained(toy).eval()
    spaces = [*SPACES.values(), Labels.of(["A", "B"]), *SPACES.values()]
    prompts, trees = [], []
    for space, text in zip(spaces, bodies(len(spaces)), strict=True):
        [prompt], tree = extended(frame, space, [text])
        prompts.append(prompt)
        trees.append(tree)
    for prompt, tree, choice in zip(prompts, trees, engine.choose(prompts, trees), strict=True):
        expected = tree.choice(
            [
                [plain_log_prob(model, prompt, [*branch.path], t) for t in branch.tokens]
                for branch in tree.branches
            ]
        )
        assert choice.log_probs == pytest.approx(expected.log_probs, abs=1e-4)


def test_no_prompts_no_answers(engine, frame):
    assert engine.choose([], []) == []
    assert engine.write([], "(a|b)", 5) == []


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_what_is_written_under_a_pattern_is_an_allowed_answer(engine, frame, space):
    prompts = frame.encode(bodies(12))
    for draft in engine.write(prompts, space.pattern, 60):
        assert draft.finish_reason == "stop"
        assert draft.text in space.documents
        assert frame.content.decode(draft.ids) == draft.text


def test_writing_alone_or_in_a_batch_is_the_same(engine, frame):
    prompts = frame.encode(bodies(9))
    together = engine.write(prompts, SPACES["more branches"].pattern, 60)
    assert together == [
        engine.write([prompt], SPACES["more branches"].pattern, 60)[0] for prompt in prompts
    ]


def test_labels_outside_ascii_are_written_character_for_character(engine, frame):
    space = Labels.of(["开心", "难过", "très bon", "🎉"])
    for draft in engine.write(frame.encode(bodies(6)), space.pattern, 60):
        assert space.parse(draft.text) in space.values


def test_text_that_meets_the_budget_first_is_cut_and_says_so(engine, frame):
    [draft] = engine.write(frame.encode(["x"]), '"[a-z ]{40,60}"', 5)
    assert draft.finish_reason == "length"
    assert len(draft.ids) == 5


def test_what_the_models_authors_set_for_chatting_does_not_leak_in(engine, frame, toy, tmp_path):
    chatty = shutil.copytree(toy, tmp_path / "chatty")
    settings = {"do_sample": True, "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.8}
    settings |= {"eos_token_id": engine.tokenizer.eos_token_id, "bad_words_ids": [[5], [70]]}
    (chatty / "generation_config.json").write_text(json.dumps(settings))
    other = TransformersEngine(chatty, device="cpu")
    prompts = frame.encode(bodies(8))
    pattern = '"[a-z ]{20,30}"'
    assert other.write(prompts, pattern, 40) == engine.write(prompts, pattern, 40)


def test_half_precision_does_not_tie_the_answers(toy, frame):
    engine = TransformersEngine(toy, device="cpu", dtype="bfloat16")
    prompts, tree = extended(frame, SPACES["scale"], bodies(20))
    values = [
        value
        for choice in engine.choose(prompts, [tree] * len(prompts))
        for value in choice.log_probs
    ]
    assert len(set(values)) > 0.95 * len(values)
    assert engine.fingerprint["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    "settings", [{"dtype": "int8"}, {"device": "tpu9"}, {"batch_tokens": 0}, {"device": "cuda"}]
)
def test_options_out_of_range_are_refused(toy, settings):
    if settings.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(ConfigError):
        TransformersEngine(toy, **settings)


def test_a_folder_that_cannot_be_loaded_is_an_engine_error(toy, tmp_path):
    broken = shutil.copytree(toy, tmp_path / "broken")
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"model_type": "no-such-type"}))
    with pytest.raises(EngineError, match="no-such-type"):
        TransformersEngine(broken)


# Attention that looks back 64 tokens only, or whose logits are capped.
WINDOWS = {
    "mistral": {},
    "gemma2": {"final_logit_softcapping": 5.0, "attn_logit_softcapping": 10.0},
    "gemma3_text": {"num_hidden_layers": 6},
    "llama4_text": {
        "num_hidden_layers": 4,
        "attention_chunk_size": 64,
        "num_local_experts": 2,
        "intermediate_size_mlp": 64,
    },
}
TOKENS = '"[a-z ]{12,20}"'


def random_model(folder, tokenizer, kind, **settings):
    size = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 2048,
        "sliding_window": 64,
        "query_pre_attn_scalar": 8,
        "initializer_range": 0.15,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**(size | settings))
    AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def plain_greedy(model, content, prompt: list[int]) -> tuple[int, ...]:
    """Write under TOKENS with no padding and no cache."""
    from outlines_core import Guide, Index

    guide, ids = Guide(Index(TOKENS, content.vocabulary)), []
    while True:
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *ids]]), use_cache=False).logits[0, -1]
        best = max(guide.get_tokens(), key=lambda token: float(logits[token]))
        if best == content.stop_id:
            return tuple(ids)
        ids.append(best)
        guide.advance(best, return_tokens=False)


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_see_what_they_see_without_padding(chatml, frame, tmp_path, kind):
    folder = random_model(tmp_path, chatml, kind, **WINDOWS[kind])
    engine = TransformersEngine(folder, device="cpu", batch_tokens=4096)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    prompts, tree = extended(frame, SPACES["scale"], ["x", *bodies(3), "y " * 100])
    expected = [
        tree.choice(
            [
                [plain_log_prob(model, prompt, [*branch.path], t) for t in branch.tokens]
                for branch in tree.branches
            ]
        ).log_probs
        for prompt in prompts
    ]
    alone = [engine.choose([prompt], [tree])[0].log_probs for prompt in prompts]
    together = [choice.log_probs for choice in engine.choose(prompts, [tree] * len(prompts))]
    assert alone == [pytest.approx(log_probs, abs=1e-4) for log_probs in expected]
    assert together == [pytest.approx(log_probs, abs=1e-4) for log_probs in expected]

    prompts = frame.encode(["x", "y " * 100])
    written = [plain_greedy(model, frame.content, prompt) for prompt in prompts]
    assert [draft.ids for draft in engine.write(prompts, TOKENS, 40)] == written
    assert [engine.write([prompt], TOKENS, 40)[0].ids for prompt in prompts] == written


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("bert", {}),
        ("mamba", {"state_size": 8}),
        ("lfm2", {"num_hidden_layers": 4, "full_attn_idxs": [1, 3]}),
        ("rwkv", {}),
    ],
)
def test_an_architecture_that_it_cannot_run_is_refused_at_open(
    chatml, tmp_path, kind, settings, dtype
):
    folder = random_model(tmp_path, chatml, kind, **settings)
    with pytest.raises(EngineError, match=f"{kind}.* is not supported.*use vllm"):
        TransformersEngine(folder, device="cpu", dtype=dtype)


def edited(toy, folder, weights=lambda tensors: tensors, **settings):
    """Copy a model folder, with changes to its weights and its config.json."""
    shutil.copytree(toy, folder)
    tensors = weights(load_file(folder / "model.safetensors"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | settings))
    return folder


@pytest.mark.parametrize(
    ("weights", "settings", "problem"),
    [
        (
            lambda t: {name: x for name, x in t.items() if "layers.1.mlp" not in name},
            {},
            "missing.*layers.1.mlp.down_proj",
        ),
        (lambda t: t, {"num_hidden_layers": 3}, "missing.*layers.2"),
        (lambda t: t, {"num_hidden_layers": 1}, "beyond the 1 .*layers.1"),
        (lambda t: t, {"intermediate_size": 96}, "another shape.*mlp.*128.*96"),
    ],
)
def test_weights_that_do_not_fit_are_named(toy, tmp_path, capfd, weights, settings, problem):
    folder = edited(toy, tmp_path / "model", weights, **settings)
    with pytest.raises(EngineError, match=problem):
        TransformersEngine(folder, device="cpu")
    assert capfd.readouterr() == ("", "")


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused(toy, tmp_path):
    def fewer(tensors):
        return {n: x[:300].clone() if "embed" in n else x for n, x in tensors.items()}

    folder = edited(toy, tmp_path / "model", fewer, vocab_size=300)
    with pytest.raises(EngineError, match="embeddings for 300"):
        TransformersEngine(folder, device="cpu")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tokenizer.json", '{"a": 1}'),
        ("tokenizer.json", "[]"),
        ("config.json", "[]"),
        ("config.json", '{"model_type": "t5"}'),
    ],
)
def test_whatever_is_broken_in_a_folder_it_is_an_engine_error_of_one_line(
    toy, tmp_path, file, text
):
    broken = shutil.copytree(toy, tmp_path / "broken")
    (broken / file).write_text(text)
    with pytest.raises(EngineError) as caught:
        TransformersEngine(broken, device="cpu")
    assert "\n" not in caught.value.problem


def test_a_package_missing_for_quantised_weights_is_an_engine_error(toy, tmp_path):
    quantised = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    folder = edited(toy, tmp_path / "model", quantization_config=quantised)
    with pytest.raises(EngineError, match="bitsandbytes"):
        TransformersEngine(folder, device="cpu")


@pytest.mark.parametrize("name", ["mps", "meta", "cuda:99", "cpu:0:1"])
def test_devices_that_it_does_not_use_are_refused(toy, name):
    with pytest.raises(ConfigError):
        TransformersEngine(toy, device=name)


@pytest.mark.parametrize("stored", ["float16", "float64"])
def test_on_a_cpu_other_types_become_float32(toy, tmp_path, stored):
    def cast(tensors):
        return {name: x.to(getattr(torch, stored)) for name, x in tensors.items()}

    folder = edited(toy, tmp_path / "model", cast, dtype=stored)
    assert TransformersEngine(folder, device="cpu").fingerprint["dtype"] == "float32"


def test_the_context_length_has_other_names_too(chatml, tmp_path):
    size = {"hidden_size": 32, "n_head": 4, "n_layer": 1, "vocab_size": len(chatml)}
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(CONFIG_MAPPING["bloom"](**size)).save_pretrained(tmp_path)
    chatml.save_pretrained(tmp_path)
    with pytest.raises(EngineError, match="how many tokens"):
        TransformersEngine(tmp_path, device="cpu")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"seq_length": 512}))
    assert TransformersEngine(tmp_path, device="cpu").context_length == 512


def test_a_batch_that_fails_is_halved_down_to_the_prompt_that_is_to_blame(toy, frame):
    engine = TransformersEngine(toy, device="cpu")
    prompts, tree = extended(frame, SPACES["one branch"], bodies(9))
    forward = engine._model.forward
    poison = prompts[4][-30:]

    def failing(*args, **kwargs):
        ids = kwargs["input_ids"].tolist()
        if any(poison == row[i : i + 30] for row in ids for i in range(len(row))):
            raise torch.OutOfMemoryError("no memory for this one")
        return forward(*args, **kwargs)

    engine._model.forward = failing
    choices = engine.choose(prompts, [tree] * len(prompts))
    assert [isinstance(choice, Choice) for choice in choices] == [i != 4 for i in range(9)]
    assert "no memory for this one" in choices[4].error


def test_an_error_of_the_device_is_the_end_of_the_engine(toy, frame):
    engine = TransformersEngine(toy, device="cpu")

    def dead(*args, **kwargs):
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    engine._model.forward = dead
    with pytest.raises(EngineError, match="device-side"):
        engine.write(frame.encode(["x"]), "(a|b)", 5)


def test_prompts_that_no_model_could_read_are_failures_and_harm_no_other(engine, frame):
    prompts, tree = extended(frame, SPACES["one branch"], ["x"])
    first, empty, beyond = engine.choose([*prompts, [], [10**6]], [tree] * 3)
    assert first.log_probs == pytest.approx(engine.choose(prompts, [tree])[0].log_probs, abs=1e-4)
    assert isinstance(empty, Failure)
    assert isinstance(beyond, Failure)
    first, empty = engine.write([*prompts, []], "(a|b)", 5)
    assert isinstance(first, Draft)
    assert isinstance(empty, Failure)


def test_logits_that_are_not_numbers_write_no_answer(toy, frame):
    engine = TransformersEngine(toy, device="cpu")
    engine._model.model.norm.weight.data.fill_(float("nan"))
    for draft in engine.write(frame.encode(["x", "y"]), "(a|b)", 5):
        assert isinstance(draft, Failure)
        assert "NaN" in draft.error


def test_threads_do_not_disturb_each_other(engine, frame):
    prompts, tree = extended(frame, SPACES["scale"], bodies(8))
    plain = frame.encode(bodies(8))

    def both(_):
        return engine.choose(prompts, [tree] * 8), engine.write(plain, TOKENS, 40)

    choices, drafts = both(0)
    with ThreadPoolExecutor(4) as pool:
        for again, rewritten in pool.map(both, range(4)):
            assert again == choices
            assert rewritten == drafts


def test_after_close_there_is_nothing_but_an_error(toy, frame):
    engine = TransformersEngine(toy, device="cpu")
    engine.close()
    engine.close()
    prompts, tree = extended(frame, SPACES["one branch"], ["x"])
    with pytest.raises(EngineError, match="closed"):
        engine.choose(prompts, [tree])
    with pytest.raises(EngineError, match="closed"):
        engine.write(prompts, "(a|b)", 5)


def test_patterns_of_ever_more_lists_of_labels_do_not_fill_the_memory(toy, frame):
    engine = TransformersEngine(toy, device="cpu")
    [prompt] = frame.encode(["x"])
    for number in range(40):
        engine.write([prompt], f"(a|{number})", 3)
    assert engine._index.cache_info().currsize <= 32
    engine.write([prompt], "(a|39)", 3)
    assert engine._index.cache_info().hits == 1
