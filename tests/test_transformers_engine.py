"""The transformers engine: exact probabilities, whatever the batch, the prefix and the settings."""

from __future__ import annotations

import json
import random
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM

from localjudge.answers import Labels, Scale
from localjudge.encoding import PromptEncoder
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
