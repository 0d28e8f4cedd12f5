"""The vLLM engine, on the real thing: exact, quiet, offline, and one bad prompt costs only itself.

Two engines of vLLM do not live in one process at once, so the tests that open their own stand
before those that share one.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys

import pytest
from transformers import AutoTokenizer

from localjudge.answers import Labels, Scale
from localjudge.encoding import PromptEncoder
from localjudge.engines.base import Choice, Draft, Failure
from localjudge.engines.transformers import TransformersEngine
from localjudge.errors import ConfigError, EngineError
from localjudge.judge import Judge
from localjudge.metrics import classifier
from localjudge.records import Status
from localjudge.tree import AnswerTree, Branch

pytest.importorskip("vllm", reason="vLLM is not installed")
from localjudge.engines.vllm import VllmEngine, _finished
from localjudge.engines.vllm_loading import _can_compile

pytestmark = [
    pytest.mark.vllm,
    # vLLM's and torch's own use of what they have deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

SPACES = {
    "one branch": Labels.of(["positive", "negative", "neutral", "toxic"]),
    "more branches": Labels.of(["very_good", "very_bad", "very", "poor", "pooh"]),
    "prefixes": Labels.of(["unsupported", "unrelated", "supported"]),
    "not ASCII": Labels.of(["开心", "难过", "très bon", "🎉", 'say "no"']),
    "scale": Scale(1, 10),
    "long scale": Scale(1, 300),
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
    "but",
    "nobody",
    "开心",
    "🎉",
]
SMALL = {"kv_cache_memory_bytes": "2000000", "enforce_eager": "true"}


def bodies(count: int, seed: int = 0) -> list[str]:
    random.seed(seed)
    return [" ".join(random.choices(WORDS, k=random.randint(1, 60))) for _ in range(count)]


def extended(frame, space, texts):
    tree = AnswerTree.build(frame.content, space.documents, frame.context)
    return [tree.extend(prompt) for prompt in frame.encode(texts)], tree


def label(choice: Choice) -> int:
    return choice.log_probs.index(max(choice.log_probs))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"dtype": "int8"}, "int8"),
        ({"device": "tpu"}, "tpu"),
        ({"device": "cuda:1"}, "cuda"),
        ({"engine_args": {"max_num_seq": "4"}}, "max_num_seqs"),
        ({"engine_args": {"trust_remote_code": "true"}}, "never run"),
    ],
)
def test_options_out_of_range_are_refused_before_anything_is_loaded(toy, settings, says):
    with pytest.raises(ConfigError, match=says):
        VllmEngine(toy, **settings)


def test_a_folder_that_cannot_be_loaded_is_an_engine_error(toy, tmp_path):
    broken = shutil.copytree(toy, tmp_path / "broken")
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"model_type": "no-such-type"}))
    with pytest.raises(EngineError, match="no-such-type"):
        VllmEngine(broken)


def test_a_context_that_memory_cannot_hold_is_refused_with_one_that_it_can(toy):
    with pytest.raises(EngineError) as caught:
        VllmEngine(toy, engine_args=SMALL | {"max_model_len": "4096"})
    assert "max_model_len=1920" in caught.value.hint
    assert "kv_cache_memory_bytes" in caught.value.hint


@pytest.mark.parametrize("lacking", ["compiler", "headers"])
def test_where_nothing_can_compile_the_model_is_not_compiled(monkeypatch, tmp_path, lacking):
    monkeypatch.delenv("CXX", raising=False)
    (tmp_path / "g++").touch(mode=0o755)
    (tmp_path / "Python.h").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert _can_compile()
    (tmp_path / {"compiler": "g++", "headers": "Python.h"}[lacking]).unlink()
    assert not _can_compile()


def test_it_compiles_the_model_where_it_can_and_says_so(toy):
    if not _can_compile():
        pytest.skip("there is no C++ compiler here, or Python's headers are missing")
    engine = VllmEngine(toy, engine_args={"kv_cache_memory_bytes": "2000000"})
    assert engine.fingerprint["compiled"] is True
    frame = PromptEncoder(engine.tokenizer).frame("Judge the text. " * 20, "Text:\n")
    prompts, tree = extended(frame, SPACES["one branch"], bodies(20))
    compiled = engine.choose(prompts, [tree] * len(prompts))
    engine.close()
    engine = VllmEngine(toy, engine_args=SMALL)
    assert engine.fingerprint["compiled"] is False
    for one, other in zip(compiled, engine.choose(prompts, [tree] * len(prompts)), strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-3)
    engine.close()


def test_without_cache_and_batches_every_order_gives_the_same_bits(toy):
    engine = VllmEngine(
        toy, engine_args=SMALL | {"enable_prefix_caching": "false", "max_num_seqs": "1"}
    )
    assert engine.fingerprint["prefix_caching"] is False
    assert engine.fingerprint["max_num_seqs"] == 1
    frame = PromptEncoder(engine.tokenizer).frame("Judge the text. " * 20, "Text:\n")
    prompts, tree = extended(frame, SPACES["one branch"], bodies(20))
    together = engine.choose(prompts, [tree] * len(prompts))
    order = random.sample(range(20), 20)
    shuffled = engine.choose([prompts[i] for i in order], [tree] * len(order))
    assert [shuffled[order.index(i)] for i in range(20)] == together
    assert [engine.choose([prompt], [tree])[0] for prompt in prompts] == together
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.choose(prompts, [tree] * len(prompts))


OFFLINE = """
import sys
reached = []
def watch(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        reached.append((event, args))
sys.addaudithook(watch)
from localjudge.answers import Scale
from localjudge.engines.vllm import VllmEngine
if __name__ == "__main__":
    engine = VllmEngine(sys.argv[1])
    [draft] = engine.write([[5, 6, 7]], Scale().pattern, 20)
    engine.close()
    print(draft.text, [each for each in reached if "127.0.0.1" not in str(each)])
"""


def test_it_starts_with_the_loopback_only_reaches_nothing_and_prints_nothing(toy, tmp_path):
    script = tmp_path / "offline.py"
    script.write_text(OFFLINE)
    alone = ["unshare", "-rn", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode:
        alone = []  # not allowed here: then the sockets alone tell
    done = subprocess.run(
        [*alone, sys.executable, str(script), str(toy)],
        env=os.environ | {"HOME": str(tmp_path), "LOCALJUDGE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    answer, outside = done.stdout.rsplit("} ", 1)
    assert json.loads(answer + "}")["output"] in range(1, 6)
    assert outside.strip() == "[]"
    assert done.stderr == ""
    assert not list(tmp_path.rglob("usage_stats*"))


@pytest.fixture(scope="module")
def hostile(toy, tmp_path_factory):
    """The toy as its authors could have meant to fool us: same weights, other files."""
    folder = shutil.copytree(toy, tmp_path_factory.mktemp("hostile") / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # A token without an embedding, with a character that stands for a fault in others.
    tokenizer.add_tokens(["\ufffd?"])
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n"
    )
    tokenizer.save_pretrained(folder)
    settings = {"do_sample": True, "temperature": 0.7, "top_k": 20, "repetition_penalty": 1.8}
    settings |= {"eos_token_id": [*tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<think>"])]}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def engine(hostile):
    engine = VllmEngine(hostile, engine_args=SMALL)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def other(toy):
    """transformers on the same weights, without the hostile files."""
    return TransformersEngine(toy, device="cpu")


@pytest.fixture
def frame(engine):
    return PromptEncoder(engine.tokenizer).frame("Judge the text. " * 20, "Text:\n")


def test_the_context_is_what_memory_holds(engine):
    assert engine.context_length == 1920


def test_it_says_what_a_verdict_depends_on(engine):
    expected = {"engine": "vllm", "device": "cpu", "dtype": "float32", "head_dtype": "float32"}
    expected |= {"quantization": None, "prefix_caching": True, "chunked_prefill": True}
    assert expected.items() <= engine.fingerprint.items()
    assert engine.fingerprint["vllm"][0].isdigit()
    json.dumps(engine.fingerprint)


def test_it_keeps_to_the_allowed_answers_with_thinking_switched_off(engine):
    for decoding in ("direct", "guided"):
        Judge(engine, decoding=decoding).check_engine()


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_probabilities_are_those_of_transformers(engine, other, frame, space):
    prompts, tree = extended(frame, space, bodies(12))
    for ours, theirs in zip(
        engine.choose(prompts, [tree] * len(prompts)),
        other.choose(prompts, [tree] * len(prompts)),
        strict=True,
    ):
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-4)


def test_more_answers_at_one_place_than_one_request_can_ask_for(engine, other, frame):
    tokens = tuple(range(5, 405))
    members = tuple((answer,) for answer in range(len(tokens)))
    tree = AnswerTree(len(tokens), 0, (), (Branch((), tokens, members),))
    prompts = frame.encode(bodies(3))
    for ours, theirs in zip(
        engine.choose(prompts, [tree] * len(prompts)),
        other.choose(prompts, [tree] * len(prompts)),
        strict=True,
    ):
        assert len(ours.log_probs) == 400
        assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-4)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_what_is_written_under_a_pattern_is_an_allowed_answer(engine, frame, space):
    for draft in engine.write(frame.encode(bodies(6)), space.pattern, 80):
        assert draft.finish_reason == "stop"
        assert draft.text in space.documents
        assert frame.content.decode(draft.ids) == draft.text


def test_what_the_models_authors_set_for_chatting_does_not_leak_in(engine, other, frame):
    prompts = frame.encode(bodies(8))
    pattern = '"[a-z ]{20,30}"'
    assert engine.write(prompts, pattern, 40) == other.write(prompts, pattern, 40)


def test_a_model_thinks_the_same_on_both_engines(engine, other, frame):
    prompts = frame.encode(bodies(12))
    drafts = engine.think(prompts, 60)
    assert drafts == other.think(prompts, 60)
    for draft in drafts:
        assert frame.content.control_ids.isdisjoint(draft.ids)


def test_every_file_may_name_a_token_that_ends_the_text(engine):
    tokens = ["<|endoftext|>", "<|im_end|>", "<think>"]
    assert engine._stop_ids == {*engine.tokenizer.convert_tokens_to_ids(tokens)}


def test_text_never_holds_a_control_token(engine, frame):
    control = frame.content.control_ids
    for draft in engine.write(frame.encode(bodies(30)), '[^"]{10,30}"', 40):
        assert isinstance(draft, Draft)
        assert control.isdisjoint(draft.ids)
        assert len(draft.text) >= 10 or draft.finish_reason == "length"


def test_text_that_meets_the_budget_first_is_cut_and_says_so(engine, frame):
    [draft] = engine.write(frame.encode(["x"]), '"[a-z ]{40,60}"', 5)
    assert draft.finish_reason == "length"
    assert len(draft.ids) == 5


def test_one_index_serves_all_rows_of_a_metric(engine, frame):
    core = engine.llm.llm_engine.engine_core.engine_core
    cache = core.structured_output_manager.backend.cache
    cache.clear()
    engine.write(frame.encode(bodies(10)), Scale(1, 7).pattern, 30)
    assert len(cache) == 1


def test_a_prompt_that_cannot_be_read_costs_only_itself(engine, frame):
    prompts, tree = extended(frame, SPACES["more branches"], bodies(20))
    good = engine.choose(prompts, [tree] * len(prompts))
    bad = {3: [7] * 5000, 8: [], 13: [99_999]}
    mixed = [bad.get(i, prompt) for i, prompt in enumerate(prompts)]
    for i, choice in enumerate(engine.choose(mixed, [tree] * len(mixed))):
        if i in bad:
            assert isinstance(choice, Failure)
        else:
            assert choice.log_probs == pytest.approx(good[i].log_probs, abs=1e-5)
    drafts = engine.write(mixed, SPACES["scale"].pattern, 30)
    assert [i for i, draft in enumerate(drafts) if isinstance(draft, Failure)] == [3, 8, 13]


def test_a_pattern_that_is_none_costs_only_those_who_asked_for_it(engine, frame):
    prompts = frame.encode(bodies(3))
    for pattern in ("([a-z", "(?=a)b"):
        assert all(isinstance(each, Failure) for each in engine.write(prompts, pattern, 9))
    assert all(isinstance(each, Draft) for each in engine.write(prompts, "(yes|no)", 9))


@pytest.mark.parametrize("reason", ["error", "abort", "repetition", None])
def test_a_request_that_vllm_gave_up_is_a_failure(reason):
    from vllm import CompletionOutput

    output = CompletionOutput(0, "", [5], None, None, finish_reason=reason)
    assert isinstance(_finished(output), Failure)
    output.finish_reason = "length"
    assert _finished(output) is output


def test_the_order_and_the_company_of_rows_change_no_label(engine, frame):
    prompts, tree = extended(frame, SPACES["more branches"], bodies(200))
    together = engine.choose(prompts, [tree] * len(prompts))
    warm = engine.choose(prompts, [tree] * len(prompts))
    alone = [engine.choose([prompt], [tree])[0] for prompt in prompts]
    order = random.sample(range(200), 200)
    shuffled = engine.choose([prompts[i] for i in order], [tree] * len(order))
    for i, choice in enumerate(together):
        for again in (warm[i], alone[i], shuffled[order.index(i)]):
            assert again.log_probs == pytest.approx(choice.log_probs, abs=1e-4)
            assert label(again) == label(choice)


def test_one_over_long_row_of_many_is_told_its_length(engine):
    tone = classifier("tone", {"good": "", "bad": ""}, inputs=["text"], user="{text}")
    rows = [{"text": "x" * 300_000 if i == 57 else f"row {i}"} for i in range(100)]
    verdicts = list(Judge(engine).run(tone, rows))
    assert [i for i, v in enumerate(verdicts) if v.status is not Status.OK] == [57]
    assert verdicts[57].status is Status.INPUT_TOO_LONG
    assert "1920" in verdicts[57].error


def test_no_prompts_no_answers(engine, frame):
    assert engine.choose([], []) == []
    assert engine.write([], "(a|b)", 5) == []
