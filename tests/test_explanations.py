"""Explanations: whatever is written, and wherever it is cut, the whole document is valid JSON."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from outlines_core import Index, Vocabulary
from transformers import AutoModelForCausalLM

from localjudge.answers import Labels, document
from localjudge.engines.base import Draft, Failure
from localjudge.engines.drafts import finished_draft
from localjudge.engines.scripted import ScriptedEngine, byte_tokenizer
from localjudge.engines.transformers import TransformersEngine
from localjudge.errors import TokenizerError
from localjudge.explanations import ALLOWED, NOT_ALLOWED, OPENING, PATTERN, Explanation
from localjudge.judge import Judge
from localjudge.metrics import classifier, scorer
from localjudge.patterns import check_pattern
from localjudge.records import Row, Status
from localjudge.tokens import ContentTokenizer

TONE = classifier(
    "tone",
    {"positive": "It is pleased.", "negative": "It is not.", "neutral": ""},
    inputs=["text"],
    user="Text:\n{text}",
)
STARS = scorer("stars", {1: "bad", 2: "fair", 3: "good"}, inputs=["text"], user="{text}")
BYTES = ContentTokenizer(byte_tokenizer())

# What a model may write as one word: no white space, and escapes of the two marks alone.
letters = st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters='"\\')
words = st.lists(letters | st.sampled_from(['\\"', "\\\\"]), min_size=1, max_size=8).map("".join)
written = st.lists(words, min_size=1, max_size=8).map(" ".join)


def cut(text: str, tokens: int) -> Draft:
    """What is left of a draft, one token a byte, when its budget ends."""
    return finished_draft(BYTES, BYTES.encode(text)[:tokens], ())


def drafted(text: str) -> Draft:
    return Draft(text, tuple(range(len(text.encode()))), "stop")


def test_the_pattern_is_read_alike_by_python_and_outlines_for_every_character():
    accepts = byte_index(PATTERN)
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000 and (code < 0x3100 or code % 97 == 0):
            text = f'{chr(code)}"'
            assert accepts(text) == bool(re.fullmatch(PATTERN, text)), hex(code)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from('aé你🎉 "\\\n\u2028\u00a0n'), max_size=12))
def test_the_pattern_allows_json_strings_of_words_and_nothing_else(text):
    read = None
    with suppress(ValueError):
        read = json.loads(f'"{text}')
    # Of the escapes of JSON only those of the two marks are allowed: the others hide white space.
    plain = read is not None and text == f'{json.dumps(read, ensure_ascii=False)[1:-1]}"'
    allowed = plain and bool(read) and read == " ".join(read.split())
    assert bool(re.fullmatch(PATTERN, text)) == allowed
    assert byte_index(PATTERN)(text) == allowed


def byte_index(pattern: str):
    if pattern not in INDICES:
        vocabulary = Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)})
        INDICES[pattern] = Index(pattern, vocabulary)
    index = INDICES[pattern]

    def accepts(text: str) -> bool:
        state = index.get_initial_state()
        for byte in text.encode():
            state = index.get_next_state(state, byte)
            if state is None:
                return False
        return index.is_final_state(state)

    return accepts


INDICES: dict[str, Index] = {}


def test_the_samples_of_the_start_up_check_are_sorted_rightly():
    check_pattern(PATTERN, ALLOWED, NOT_ALLOWED)
    assert all(re.fullmatch(PATTERN, text) for text in ALLOWED)
    assert not any(re.fullmatch(PATTERN, text) for text in NOT_ALLOWED)


@settings(max_examples=300, deadline=None)
@given(written)
def test_a_whole_explanation_is_kept_as_it_is(text):
    explanation = Explanation.of(drafted(f'{text}"'))
    assert (explanation.written, explanation.cut) == (text, False)
    assert json.loads(f'{OPENING}{text}"}}') == {"explanation": explanation.text}
    assert explanation.text.strip()


@settings(max_examples=500, deadline=None)
@given(written, st.data())
def test_cut_at_any_token_it_ends_at_a_whole_word(text, data):
    tokens = data.draw(st.integers(1, len(text.encode())))
    explanation = Explanation.of(cut(f'{text}"', tokens))
    assert explanation.cut
    assert explanation.tokens == tokens
    answer = json.loads(f'{OPENING}{explanation.written}", "output": 1}}')
    assert answer == {"explanation": explanation.text, "output": 1}
    there = text.encode()[:tokens].decode(errors="ignore")
    if " " in there:
        # All words but the last, which may be a part of one.
        assert explanation.written.split(" ") == there.split(" ")[:-1]
    else:
        assert text.startswith(explanation.written)


@pytest.mark.parametrize(
    ("there", "kept"),
    [
        ("The answer is", "The answer"),
        ("The answer is ", "The answer is"),
        ("The", "The"),
        ("", ""),
        ("开心的人", "开心的人"),
        ('It says \\"no', "It says"),
        ('It says \\"', "It says"),
        ("It says \\", "It says"),
        ("C:\\\\a\\", "C:\\\\a"),
        ("\\\\\\", "\\\\"),
        ("\\\\", "\\\\"),
        ("\\", ""),
        ("a" * 100_000, "a" * 100_000),
    ],
    ids=str,
)
def test_what_is_left_of_a_cut_explanation(there, kept):
    explanation = Explanation.of(Draft(there, (1, 2), "length"))
    assert (explanation.written, explanation.cut) == (kept, True)
    json.loads(f'"{explanation.written}"')


@pytest.mark.parametrize(
    ("said", "reason"),
    [(said, "stop") for said in ("It is", '"', ' "', 'a "', 'a "b"', '\\"', "")]
    + [(said, reason) for said in ('a\nb"', 'a\\n"') for reason in ("stop", "length")],
)
def test_a_draft_that_is_not_under_the_pattern_is_no_explanation(said, reason):
    with pytest.raises(ValueError, match="one line of text"):
        Explanation.of(Draft(said, (1,), reason))


def test_a_budget_that_ends_with_the_closing_mark_cuts_nothing():
    assert Explanation.of(Draft('Fine."', (1, 2), "length")) == Explanation("Fine.", False, 2)


class Explaining(ScriptedEngine):
    """Writes what it is told, one token a byte, and keeps the prompts behind which it chooses."""

    def __init__(self, said: str, **settings) -> None:
        super().__init__(**settings)
        self.said = said
        self.chosen: list[str] = []

    def write(self, prompts, pattern, max_tokens):
        assert pattern == PATTERN
        return [
            cut(self.said, max_tokens)
            if len(self.said.encode()) > max_tokens
            else Draft(self.said, tuple(BYTES.encode(self.said)), "stop")
            for _ in prompts
        ]

    def choose(self, prompts, trees):
        self.chosen += [self.tokenizer.decode([*prompt]) for prompt in prompts]
        return super().choose(prompts, trees)


def answer_so_far(prompt: str) -> str:
    return prompt.rpartition("<|im_start|>assistant\n")[2]


@settings(max_examples=40, deadline=None)
@given(written, st.integers(1, 60))
def test_the_whole_document_is_valid_json_whatever_the_budget(text, budget):
    for metric in (TONE, STARS):
        engine = Explaining(f'{text}"')
        judge = Judge(engine, explain=True, explain_tokens=budget)
        [verdict] = judge.run(metric, [{"text": "x"}])
        size = len(text.encode()) + 1
        assert verdict.status is Status.OK
        assert verdict.truncated == (size > budget)
        assert verdict.output_tokens == min(size, budget)
        assert sum(verdict.probabilities.values()) == pytest.approx(1)
        whole = document(verdict.value, verdict.explanation)
        assert json.loads(whole) == {"explanation": verdict.explanation, "output": verdict.value}
        # The model chose where its own document, letter by letter, goes on with the answer.
        [prompt] = engine.chosen
        so_far = answer_so_far(prompt)
        assert so_far.startswith(OPENING)
        assert whole.startswith(so_far)
        assert so_far.removeprefix(whole[: whole.rindex('", "output": ')])[:13] == '", "output": '


def test_a_budget_below_the_first_character_leaves_an_empty_explanation_and_a_verdict():
    [verdict] = Judge(Explaining('你好"'), explain=True, explain_tokens=2).run(
        TONE, [{"text": "x"}]
    )
    assert (verdict.status, verdict.explanation, verdict.truncated) == (Status.OK, "", True)
    assert verdict.output_tokens == 2
    assert sum(verdict.probabilities.values()) == pytest.approx(1)


def test_an_explanation_is_asked_for_only_where_it_is_wanted():
    [verdict] = Judge(Explaining('Fine."')).run(TONE, [{"text": "x"}])
    assert (verdict.explanation, verdict.output_tokens) == (None, 0)


@pytest.mark.parametrize("said", ['  "', "", '"', 'It says "no""', 'a\nb"', "no end"])
def test_what_is_no_explanation_is_invalid_and_costs_only_its_row(said):
    class Sometimes(Explaining):
        def write(self, prompts, pattern, max_tokens):
            drafts = super().write(prompts, pattern, max_tokens)
            return [
                drafted(said) if "> odd" in self.tokenizer.decode([*prompt]) else draft
                for prompt, draft in zip(prompts, drafts, strict=True)
            ]

    engine = Sometimes('Fine."')
    rows = [{"text": "odd"}, {"text": "even"}]
    odd, even = Judge(engine, explain=True).run(TONE, rows)
    assert odd.status is Status.INVALID_OUTPUT
    assert odd.metadata == {"raw": said}
    assert odd.value is odd.explanation is odd.probabilities is None
    assert odd.output_tokens == len(said.encode())
    assert (even.status, even.explanation) == (Status.OK, "Fine.")


def test_a_failure_to_write_an_explanation_costs_only_its_row():
    class Failing(Explaining):
        def write(self, prompts, pattern, max_tokens):
            return [Failure("no memory"), *super().write(prompts[1:], pattern, max_tokens)]

    one, two = Judge(Failing('Fine."'), explain=True).run(TONE, [{"text": "a"}, {"text": "b"}])
    assert (one.status, one.error) == (Status.ENGINE_ERROR, "no memory")
    assert one.prompt_tokens == two.prompt_tokens > 0
    assert two.status is Status.OK


def test_an_explanation_that_the_tokenizer_cannot_carry_costs_only_its_row(monkeypatch):
    judge = Judge(Explaining('Fine."'), explain=True)
    task = judge.prepare(TONE)
    encode = ContentTokenizer.encode

    def failing(content, text):
        if text == "Fine.":
            raise TokenizerError("no token for it")
        return encode(content, text)

    monkeypatch.setattr(ContentTokenizer, "encode", failing)
    [verdict] = judge.judge(task, [Row("1", {"text": "x"})])
    assert (verdict.status, verdict.error) == (Status.INVALID_OUTPUT, "no token for it")


def test_a_failure_to_choose_keeps_count_of_what_was_written():
    class Failing(Explaining):
        def choose(self, prompts, trees):
            return [Failure("no memory")] * len(prompts)

    [verdict] = Judge(Failing('Fine."'), explain=True).run(TONE, [{"text": "a"}])
    assert (verdict.status, verdict.output_tokens) == (Status.ENGINE_ERROR, len('Fine."'))


def test_the_explanation_may_name_other_labels_and_even_a_whole_verdict():
    said = 'Not negative: {\\"output\\": \\"negative\\"} would be wrong. negative"'
    engine = Explaining(said, choose=lambda prompt, size: [0.9, 0.05, 0.05])
    [verdict] = Judge(engine, explain=True).run(TONE, [{"text": "x"}])
    assert verdict.value == "positive"
    assert verdict.explanation == 'Not negative: {"output": "negative"} would be wrong. negative'


class Guided(Explaining):
    """Writes an explanation and, behind it, an answer."""

    def __init__(self, said: str, answer: str) -> None:
        super().__init__(said)
        self.answer = answer

    def write(self, prompts, pattern, max_tokens):
        if pattern == PATTERN:
            return super().write(prompts, pattern, max_tokens)
        self.chosen += [self.tokenizer.decode([*prompt]) for prompt in prompts]
        return [drafted(self.answer)] * len(prompts)


def test_a_guided_answer_goes_on_behind_its_explanation():
    engine = Guided('It is \\"good\\"."', '", "output": "positive"}')
    [verdict] = Judge(engine, explain=True, decoding="guided").run(TONE, [{"text": "x"}])
    assert (verdict.value, verdict.explanation) == ("positive", 'It is "good".')
    assert answer_so_far(engine.chosen[0]) == '{"explanation": "It is \\"good\\".'
    assert verdict.output_tokens == len('It is \\"good\\"."') + len('", "output": "positive"}')
    assert verdict.probabilities is None


@pytest.mark.parametrize(
    "answer",
    ['{"output": "positive"}', '"output": "positive"}', 'x", "output": "positive"}', "positive"],
)
def test_a_guided_answer_behind_an_explanation_is_read_strictly(answer):
    [verdict] = Judge(Guided('Fine."', answer), explain=True, decoding="guided").run(
        TONE, [{"text": "x"}]
    )
    assert verdict.status is Status.INVALID_OUTPUT
    assert verdict.metadata == {"raw": answer}


def test_room_is_kept_for_explanation_and_answer():
    judge = Judge(Explaining('Fine."', context_length=10), explain=True, explain_tokens=10)
    [verdict] = judge.run(TONE, [{"text": "x"}])
    assert verdict.status is Status.INPUT_TOO_LONG
    # One token a byte, and one that ends the answer.
    room = len(OPENING) + 10 + max(map(len, TONE.answers.endings)) + 1
    assert f"up to {room} for the answer" in verdict.error
    needed = verdict.prompt_tokens + room
    for length, status in ((needed, Status.OK), (needed - 1, Status.INPUT_TOO_LONG)):
        engine = Explaining('Fine."', context_length=length)
        [verdict] = Judge(engine, explain=True, explain_tokens=10).run(TONE, [{"text": "x"}])
        assert verdict.status is status


# With a model


ROWS = [
    {"text": text}
    for text in (
        "good",
        "The quick brown fox jumps.",
        "très bon, 开心",
        'say "no" {x}',
        "bad " * 9,
    )
]


@pytest.fixture(scope="module")
def engine(toy):
    engine = TransformersEngine(toy, device="cpu")
    yield engine
    engine.close()


@pytest.fixture
def chosen(engine, monkeypatch):
    """The prompts behind which the model chose."""
    seen = []
    choose = engine.choose

    def recording(prompts, trees):
        seen.extend(zip(map(list, prompts), trees, strict=True))
        return choose(prompts, trees)

    monkeypatch.setattr(engine, "choose", recording)
    return seen


@pytest.mark.parametrize("budget", [1, 2, 5, 20])
@pytest.mark.parametrize("metric", [TONE, STARS], ids=["classify", "score"])
def test_a_model_writes_a_document_that_is_valid_json(engine, chosen, metric, budget):
    verdicts = [*Judge(engine, explain=True, explain_tokens=budget).run(metric, ROWS)]
    ends = {answer_so_far(engine.tokenizer.decode(prompt)) for prompt, _ in chosen}
    for verdict in verdicts:
        assert verdict.status is Status.OK
        assert 0 < verdict.output_tokens <= budget
        assert sum(verdict.probabilities.values()) == pytest.approx(1)
        whole = document(verdict.value, verdict.explanation)
        assert json.loads(whole) == {"explanation": verdict.explanation, "output": verdict.value}
        assert any(whole.startswith(end) for end in ends)
        if budget > 3:
            assert verdict.explanation.strip()
    assert any(verdict.truncated for verdict in verdicts)


@pytest.mark.parametrize("metric", [TONE, STARS], ids=["classify", "score"])
def test_a_model_guided_to_its_answer_gives_an_allowed_one(engine, metric):
    judge = Judge(engine, explain=True, explain_tokens=6, decoding="guided")
    for verdict in judge.run(metric, ROWS):
        assert verdict.status is Status.OK
        assert verdict.value in metric.answers.values
        assert verdict.explanation
        assert verdict.output_tokens > 6 or not verdict.truncated


def test_the_probabilities_behind_an_explanation_are_the_models_own(engine, toy, chosen):
    model = AutoModelForCausalLM.from_pretrained(toy).eval()
    judge = Judge(engine, explain=True, explain_tokens=5)
    content = judge.encoder.content
    task = judge.prepare(TONE)
    for row in ROWS[1:4]:
        chosen.clear()
        [verdict] = judge.run(TONE, [row])
        [question] = task.questions(Row("1", row))
        [prompt] = question.variant.frame.encode([question.body])
        # The whole text in pieces: prompt, opening, explanation, ending.
        context = question.variant.frame.context
        kept = prompt[: len(prompt) - len(content.encode(context))]
        written = json.dumps(verdict.explanation, ensure_ascii=False)[1:-1]
        before = [*kept, *content.encode(context + OPENING), *content.encode(written)]
        paths = [content.encode(ending) for ending in TONE.answers.endings]
        totals = [brute_force(model, before, path, paths) for path in paths]
        best = max(totals)
        weights = [math.exp(total - best) for total in totals]
        expected = dict(zip(TONE.answers.values, [w / sum(weights) for w in weights], strict=True))
        assert verdict.probabilities == pytest.approx(expected, abs=1e-4)
        [(ids, _)] = chosen
        assert ids[: len(before)] == before


def brute_force(model, before: list[int], path: list[int], paths: list[list[int]]) -> float:
    """Log-probability of `path`, counted where another path goes another way."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*before, *path]])).logits[0]
    log_probs = logits.float().log_softmax(-1)
    total = 0.0
    for place, token in enumerate(path):
        alike = [other for other in paths if other[:place] == path[:place]]
        if any(other[place] != token for other in alike):
            total += float(log_probs[len(before) + place - 1, token])
    return total


def test_labels_that_begin_alike_are_told_apart_behind_an_explanation(engine):
    metric = classifier(
        "m", dict.fromkeys(["good", "good_enough", "very_good"], ""), inputs=["text"], user="{text}"
    )
    assert isinstance(metric.answers, Labels)
    for verdict in Judge(engine, explain=True, explain_tokens=6).run(metric, ROWS):
        assert verdict.value in metric.answers.values
        assert verdict.confidence == max(verdict.probabilities.values())


def test_a_cut_text_without_spaces_ends_at_a_character():
    text = "好，开始。 " + "这是一个很长的想法" * 20
    [cut] = [Explanation.of(Draft(text, (1, 2), "length"))]
    assert (cut.text, cut.cut) == (text, True)
