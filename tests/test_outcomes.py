"""From answers to a verdict: several ways of asking are joined, and nothing is lost or made up."""

from __future__ import annotations

import json
import math

import pytest

from localjudge.answers import Label, Labels, Open, Text
from localjudge.engines.base import Choice, Draft, Failure
from localjudge.engines.drafts import finished_draft
from localjudge.engines.scripted import ScriptedEngine
from localjudge.engines.transformers import TransformersEngine
from localjudge.explanations import PATTERN
from localjudge.judge import Judge
from localjudge.metrics import Metric, Pair, classifier
from localjudge.records import Row, Status, Verdict
from localjudge.tokens import ContentTokenizer

BETTER = Metric(
    name="better",
    inputs={"question": "input", "a": "output_a", "b": "output_b"},
    answers=Labels(
        tuple(Label(name, score=score) for name, score in (("A", 1), ("B", 0), ("tie", 0.5)))
    ),
    user="{question}\n\nAnswer A:\n{a}\n\nAnswer B:\n{b}",
    pair=Pair(("a", "b"), ("A", "B"), "tie"),
)
ROW = {"input": "q", "output_a": "first", "output_b": "second"}
TONE = classifier(
    "tone",
    {"glad": Label("glad", "", 1), "sad": Label("sad", "", -1), "calm": Label("calm", "", 0)},
    inputs=["text"],
    user="Text:\n{text}",
)
SUMMARY = Metric(
    name="summary",
    inputs={"text": "text"},
    answers=Text("The user", 2, 30),
    user="{text}",
    direction="neutral",
)
TOPIC = Metric(
    name="topic",
    inputs={"text": "text"},
    answers=Open("choices", (Label("other"),)),
    user="{choices}\n\n{text}",
)


def shown_labels(prompt: str) -> list[str]:
    """The labels in the order in which a prompt shows them."""
    listed = prompt.partition("Answers:\n")[2].partition("\n\n")[0]
    return [json.loads(line.removeprefix("- ").partition(": ")[0]) for line in listed.splitlines()]


def is_swapped(prompt: str) -> bool:
    return prompt.index("> second") < prompt.index("> first")


def judged(metric: Metric, row, choose=None, *, write=None, **options) -> Verdict:
    [verdict] = Judge(ScriptedEngine(choose, write), **options).run(metric, [row])
    assert Verdict.from_json(verdict.to_json()) == verdict
    return verdict


# Pairs


def test_both_orders_are_asked_and_their_probabilities_averaged():
    def choose(prompt, size):
        return [0.1, 0.6, 0.1] if is_swapped(prompt) else [0.5, 0.3, 0.2]

    verdict = judged(BETTER, ROW, choose)
    # Of 0.8 in all, the other order gives what is B there, that is A, 0.75; B and the tie 0.125.
    assert verdict.probabilities == pytest.approx(
        {"A": (0.5 + 0.75) / 2, "B": (0.3 + 0.125) / 2, "tie": (0.2 + 0.125) / 2}
    )
    assert (verdict.value, verdict.label, verdict.score) == ("A", "A", 1)
    assert verdict.metadata == {"order_flip": False}
    assert verdict.confidence == pytest.approx(0.625)
    assert verdict.answer_mass == pytest.approx((1.0 + 0.8) / 2)
    assert verdict.expected_score == pytest.approx(0.625 + 0.5 * 0.1625)


@pytest.mark.parametrize(
    ("here", "there", "value", "flip"),
    [
        # What the model says in the declared order, and in the other one.
        ("A", "B", "A", False),
        ("B", "A", "B", False),
        ("tie", "tie", "tie", False),
        ("A", "A", "tie", True),
        ("B", "B", "tie", True),
        ("A", "tie", "tie", True),
        ("tie", "B", "tie", True),
    ],
)
@pytest.mark.parametrize("decoding", ["direct", "guided"])
def test_agreement_gives_the_winner_and_disagreement_a_tie(here, there, value, flip, decoding):
    def says(prompt):
        return there if is_swapped(prompt) else here

    verdict = judged(
        BETTER,
        ROW,
        lambda prompt, size: [0.8 if name == says(prompt) else 0.1 for name in ("A", "B", "tie")],
        write=lambda prompt: f'{{"output": "{says(prompt)}"}}',
        decoding=decoding,
    )
    assert (verdict.status, verdict.value) == (Status.OK, value)
    assert verdict.metadata == {"order_flip": flip}
    if decoding == "direct":
        assert verdict.confidence == pytest.approx(verdict.probabilities[value])
        assert sum(verdict.probabilities.values()) == pytest.approx(1)
    else:
        assert verdict.probabilities is verdict.confidence is verdict.answer_mass is None
        assert verdict.output_tokens == len(f'{{"output": "{here}"}}{{"output": "{there}"}}')


def test_a_model_that_always_says_the_first_gets_nothing_but_ties():
    rows = [{**ROW, "input": f"question {i}"} for i in range(20)]
    engine = ScriptedEngine(lambda prompt, size: [0.9, 0.05, 0.05])
    for verdict in Judge(engine).run(BETTER, rows):
        assert (verdict.value, verdict.metadata["order_flip"]) == ("tie", True)
        assert verdict.probabilities == pytest.approx({"A": 0.475, "B": 0.475, "tie": 0.05})


def test_two_equal_answers_are_one_question_in_both_orders():
    asked = []

    def choose(prompt, size):
        asked.append(prompt)
        return [0.6, 0.3, 0.1]

    verdict = judged(BETTER, {**ROW, "output_b": "first"}, choose)
    assert verdict.value == "tie"
    assert len({*asked}) == 1


def test_a_pair_costs_the_tokens_of_both_orders():
    judge = Judge(ScriptedEngine())
    questions = judge.prepare(BETTER).questions(Row("1", ROW))
    lengths = [len(q.variant.frame.encode([q.body])[0]) for q in questions]
    [verdict] = judge.run(BETTER, [ROW])
    assert (verdict.prompt_tokens, verdict.output_tokens) == (sum(lengths), 0)


@pytest.mark.parametrize("side", [True, False])
def test_where_one_order_fails_the_row_has_no_verdict(side):
    def choose(prompt, size):
        return Failure("no memory") if is_swapped(prompt) is side else [0.8, 0.1, 0.1]

    verdict = judged(BETTER, ROW, choose)
    assert (verdict.status, verdict.error) == (Status.ENGINE_ERROR, "no memory")
    assert verdict.value is verdict.probabilities is verdict.score is None
    assert verdict.metadata == {}


# Orders of the labels


def test_a_bias_for_the_first_place_averages_out():
    # The model finds "calm" twice as good as the others, and the first place three times.
    def choose(prompt, size):
        return [
            (2 if label == "calm" else 1) * (3 if place == 0 else 1) / 10
            for place, label in enumerate(shown_labels(prompt))
        ]

    assert judged(TONE, {"text": "x"}, choose).value == "glad"
    for count in (3, 6):
        verdict = judged(TONE, {"text": "x"}, choose, permute_labels=count)
        assert verdict.value == "calm"
        assert verdict.metadata == {"label_flip": True}
        # glad: 3/6, 1/8, 1/6 where glad, calm or sad stands first; and so on.
        glad = (3 / 6 + 1 / 8 + 1 / 6) / 3
        calm = (2 / 6 + 6 / 8 + 2 / 6) / 3
        assert verdict.probabilities == pytest.approx({"glad": glad, "sad": glad, "calm": calm})
        assert verdict.expected_score == pytest.approx(0)
        assert verdict.confidence == pytest.approx(calm)
        assert verdict.score == 0


def test_distributions_are_averaged_after_they_are_mapped_back():
    def choose(prompt, size):
        return [0.6, 0.3, 0.1] if shown_labels(prompt)[0] == "glad" else [0.1, 0.2, 0.7]

    verdict = judged(TONE, {"text": "x"}, choose, permute_labels=2)
    # The second order is sad, calm, glad.
    assert verdict.probabilities == pytest.approx(
        {"glad": (0.6 + 0.7) / 2, "sad": (0.3 + 0.1) / 2, "calm": (0.1 + 0.2) / 2}
    )
    assert (verdict.value, verdict.metadata) == ("glad", {"label_flip": False})
    assert [*verdict.probabilities] == ["glad", "sad", "calm"]


def test_the_label_is_that_of_the_average_even_if_most_orders_say_another():
    # Twice glad by a little, once calm by far.
    def choose(prompt, size):
        sure = shown_labels(prompt)[0] == "calm"
        likes = (
            {"glad": 0.02, "sad": 0.02, "calm": 0.96}
            if sure
            else {"glad": 0.5, "sad": 0.1, "calm": 0.4}
        )
        return [likes[label] for label in shown_labels(prompt)]

    verdict = judged(TONE, {"text": "x"}, choose, permute_labels=3)
    assert (verdict.value, verdict.metadata) == ("calm", {"label_flip": True})
    assert verdict.confidence == max(verdict.probabilities.values())


def test_one_order_has_no_flip_to_speak_of():
    assert judged(TONE, {"text": "x"}).metadata == {}


def test_a_pair_in_several_orders_is_joined_side_by_side():
    # Whatever is shown, the model likes what is listed first a little, and the longer answer a lot.
    def choose(prompt, size):
        better = "B" if is_swapped(prompt) else "A"
        return [
            0.2 + 0.1 * (place == 0) + 0.3 * (label == better)
            for place, label in enumerate(shown_labels(prompt))
        ]

    verdict = judged(BETTER, ROW, choose, permute_labels=3)
    assert (verdict.value, verdict.metadata) == ("A", {"label_flip": False, "order_flip": False})
    # Each order sums to 1: A has 0.5 and once 0.6, each of the others 0.2 and once 0.3.
    assert verdict.probabilities == pytest.approx({"A": 1.6 / 3, "B": 0.7 / 3, "tie": 0.7 / 3})


def test_a_bias_for_a_place_in_the_list_is_told_from_a_bias_for_a_place_in_the_pair():
    def first_listed(prompt, size):
        return [0.8, 0.1, 0.1]

    verdict = judged(BETTER, ROW, first_listed, permute_labels=3)
    assert verdict.metadata["label_flip"]
    assert verdict.probabilities == pytest.approx(dict.fromkeys(["A", "B", "tie"], 1 / 3))

    def first_shown(prompt, size):
        return [0.8 if label == "A" else 0.1 for label in shown_labels(prompt)]

    verdict = judged(BETTER, ROW, first_shown, permute_labels=3)
    assert (verdict.value, verdict.metadata) == ("tie", {"label_flip": False, "order_flip": True})


def test_where_one_order_of_labels_fails_the_row_has_no_verdict():
    def choose(prompt, size):
        return Failure("no memory") if shown_labels(prompt)[0] == "sad" else [0.8, 0.1, 0.1]

    verdict = judged(TONE, {"text": "x"}, choose, permute_labels=2)
    assert verdict.status is Status.ENGINE_ERROR


# Explanations of several ways of asking


class Explainer(ScriptedEngine):
    """Explains by what stands first, and chooses by a script."""

    def write(self, prompts, pattern, max_tokens):
        content = ContentTokenizer(self.tokenizer)
        texts = [self._said(self.tokenizer.decode([*prompt])) for prompt in prompts]
        assert pattern == PATTERN
        return [
            finished_draft(
                content,
                [*content.encode(text), self.tokenizer.eos_token_id],
                {self.tokenizer.eos_token_id},
            )
            for text in texts
        ]

    def _said(self, prompt: str) -> str:
        if "> second" in prompt:
            return 'Asked the other way."' if is_swapped(prompt) else 'Asked as declared."'
        return f'{shown_labels(prompt)[0]} stands first."'


def explained(metric, row, choose, **options) -> Verdict:
    [verdict] = Judge(Explainer(choose), explain=True, **options).run(metric, [row])
    return verdict


def test_a_pair_is_explained_as_it_was_declared():
    for likes in (lambda prompt, size: [0.8, 0.1, 0.1], lambda prompt, size: [0.1, 0.1, 0.8]):
        verdict = explained(BETTER, ROW, likes)
        assert verdict.explanation == "Asked as declared."
        assert verdict.output_tokens == len('Asked as declared."Asked the other way."')


def test_the_explanation_is_one_that_led_to_the_verdict():
    def choose(prompt, size):
        sure = shown_labels(prompt)[0] == "calm"
        likes = (
            {"glad": 0.0, "sad": 0.0, "calm": 1.0}
            if sure
            else {"glad": 0.4, "sad": 0.3, "calm": 0.3}
        )
        return [likes[label] for label in shown_labels(prompt)]

    verdict = explained(TONE, {"text": "x"}, choose, permute_labels=3)
    assert (verdict.value, verdict.explanation) == ("calm", "calm stands first.")


def test_one_cut_explanation_of_several_marks_the_verdict():
    choose = lambda prompt, size: [0.6, 0.3, 0.1]  # noqa: E731

    class Cut(Explainer):
        def write(self, prompts, pattern, max_tokens):
            drafts = super().write(prompts, pattern, max_tokens)
            return [
                Draft(d.text[:8], d.ids[:8], "length") if "other way" in d.text else d
                for d in drafts
            ]

    [verdict] = Judge(Cut(choose), explain=True).run(BETTER, [ROW])
    assert verdict.truncated
    assert verdict.explanation == "Asked as declared."


# Texts


def written(said, **settings) -> Verdict:
    return judged(SUMMARY, {"text": "x"}, write=lambda _: said, **settings)


def test_a_text_is_the_value_and_has_neither_label_nor_probabilities():
    verdict = written(' asked for a recipe. It was short!"')
    assert verdict.status is Status.OK
    assert verdict.value == "The user asked for a recipe. It was short!"
    assert verdict.label is verdict.score is verdict.probabilities is verdict.confidence is None
    assert verdict.expected_score is verdict.answer_mass is verdict.explanation is None
    assert not verdict.truncated
    assert verdict.output_tokens == len(' asked for a recipe. It was short!"')


def test_a_text_begins_where_its_prompt_leaves_off():
    seen = []

    def write(prompt):
        seen.append(prompt)
        return ' asked."'

    judged(SUMMARY, {"text": "x"}, write=write)
    assert seen[0].endswith('<|im_start|>assistant\n{"output": "The user')


@pytest.mark.parametrize(
    "said",
    [
        " asked for three things",
        " asked for three thin",
        " asked for three things.",
        ' asked "',
        "",
    ],
)
def test_a_text_that_meets_its_budget_is_truncated_and_never_returned(said):
    verdict = written(Draft(said, (1, 2, 3), "length"))
    assert (verdict.status, verdict.truncated) == (Status.TRUNCATED, True)
    assert verdict.value is verdict.label is verdict.score is None
    assert verdict.metadata == {"raw": said}
    assert verdict.output_tokens == 3
    assert "3 tokens" in verdict.error


def test_a_text_that_ends_with_its_budget_is_whole():
    verdict = written(Draft(' asked."', (1, 2, 3), "length"))
    assert (verdict.status, verdict.value) == (Status.OK, "The user asked.")


@pytest.mark.parametrize(
    "said",
    [
        " asked",
        ' asked."}',
        's asked."',
        ' "asked"."',
        f'{" w" * 29}."',
        ' a. b. c."',
        'The user asked."',
        '{"output": "The user asked."}',
    ],
)
def test_a_text_beyond_its_limits_is_invalid(said):
    verdict = written(said)
    assert verdict.status is Status.INVALID_OUTPUT
    assert verdict.value is None
    assert verdict.metadata == {"raw": said}
    assert verdict.output_tokens == len(said)


def test_guided_decoding_makes_no_difference_to_a_text():
    assert written(' asked."', decoding="guided") == written(' asked."')


# What was written is counted, whatever became of it


def test_tokens_of_an_answer_that_cannot_be_read_are_counted():
    for said, status in (
        ("rubbish", Status.INVALID_OUTPUT),
        (Draft('{"outp', (1, 2, 3, 4, 5, 6, 7), "length"), Status.TRUNCATED),
    ):
        verdict = judged(TONE, {"text": "x"}, write=lambda _, said=said: said, decoding="guided")
        assert (verdict.status, verdict.output_tokens) == (status, 7)
        assert verdict.prompt_tokens > 0


def test_equal_probabilities_give_the_first_declared_label():
    verdict = judged(TONE, {"text": "x"}, lambda prompt, size: [0.2] * size, permute_labels=6)
    assert (verdict.value, verdict.metadata["label_flip"]) == ("glad", False)


def test_labels_of_a_row_have_their_probabilities_in_their_order():
    verdict = judged(
        TOPIC, {"text": "x", "choices": ["tax", "visa"]}, lambda prompt, size: [0.2, 0.7, 0.1]
    )
    assert verdict.probabilities == pytest.approx({"tax": 0.2, "visa": 0.7, "other": 0.1})
    assert (verdict.label, verdict.score, verdict.expected_score) == ("visa", None, None)


@pytest.mark.parametrize("place", range(3))
def test_one_number_of_several_that_is_none_is_an_error_wherever_it_stands(place):
    class Broken(ScriptedEngine):
        def choose(self, prompts, trees):
            values = [[-1.0] * tree.size for tree in trees]
            values[-1][place] = math.nan
            return [Choice(tuple(each)) for each in values]

    [verdict] = Judge(Broken()).run(BETTER, [ROW])
    assert verdict.status is Status.ENGINE_ERROR


# With a model


@pytest.fixture(scope="module")
def engine(toy):
    engine = TransformersEngine(toy, device="cpu")
    yield engine
    engine.close()


TEXTS = [
    {"text": text} for text in ("good", "The quick brown fox jumps over the dog.", "très bon, 开心")
]


def test_a_model_writes_texts_within_their_limits_or_none(engine):
    statuses = set()
    for limits in (Text("The user", 2, 8), Text("", 1, 3), Text("Überall", 3, 9)):
        metric = Metric(name="m", inputs={"text": "text"}, answers=limits, user="{text}")
        for verdict in Judge(engine).run(metric, TEXTS):
            statuses.add(verdict.status)
            if verdict.status is Status.TRUNCATED:
                assert verdict.value is None
                assert verdict.output_tokens == 4 * limits.max_words
            else:
                assert verdict.value.startswith(limits.begins)
                assert verdict.value[-1] in ".!?"
                assert sum(verdict.value.count(stop) for stop in ".!?") <= limits.max_sentences
                assert len(verdict.value.split()) <= limits.max_words
    # Which of the two it is, is up to the random model; in neither is half a text a value.
    assert statuses <= {Status.OK, Status.TRUNCATED}


def test_a_model_is_asked_in_every_way_at_once_without_mixing_rows(engine):
    rows = [{**ROW, "input": f"question {i}"} for i in range(3)]
    judge = Judge(engine, permute_labels=3)
    together = [*judge.run(BETTER, rows)]
    for row, verdict in zip(rows, together, strict=True):
        [alone] = judge.run(BETTER, [row])
        assert alone.probabilities == pytest.approx(verdict.probabilities, abs=1e-3)
        assert alone.prompt_tokens == verdict.prompt_tokens


def test_the_average_over_orders_is_that_of_the_orders_asked_one_by_one(engine):
    names = ["glad", "sad", "calm"]
    singles = []
    for shift in range(3):
        shown = names[shift:] + names[:shift]
        metric = classifier("m", dict.fromkeys(shown, ""), inputs=["text"], user="{text}")
        [verdict] = Judge(engine).run(metric, TEXTS[:1])
        singles.append(verdict.probabilities)
    metric = classifier("m", dict.fromkeys(names, ""), inputs=["text"], user="{text}")
    [verdict] = Judge(engine, permute_labels=3).run(metric, TEXTS[:1])
    expected = {name: sum(single[name] for single in singles) / 3 for name in names}
    assert verdict.probabilities == pytest.approx(expected, abs=1e-4)
