"""What each row asks: its labels, its inputs, its orders, and what they have in common."""

from __future__ import annotations

import copy
import dataclasses
import json
from itertools import permutations
from math import factorial

import pytest

from localjudge.answers import Label, Labels, Open, Text
from localjudge.encoding import PromptEncoder
from localjudge.engines.scripted import ScriptedEngine, byte_tokenizer
from localjudge.errors import ConfigError, TokenizerError
from localjudge.judge import Judge
from localjudge.messages import ABSENT
from localjudge.metrics import Example, Metric, Pair, classifier, scorer
from localjudge.outcomes import Refusal
from localjudge.records import Row, Status
from localjudge.tasks import Task, check_asking

TONE = classifier(
    "tone", dict.fromkeys(["glad", "sad", "calm"], ""), inputs=["text"], user="Text:\n{text}"
)
SUMMARY = Metric(
    name="summary", inputs={"text": "text"}, answers=Text("The user", 2, 30), user="{text}"
)
TOPIC = Metric(
    name="topic",
    inputs={"text": "text"},
    answers=Open("choices", (Label("other", "None of them."),)),
    user="Topics:\n{choices}\n\nText:\n{text}",
)
BETTER = Metric(
    name="better",
    inputs={"question": "input", "a": "output_a", "b": "output_b"},
    answers=Labels.of(["A", "B", "tie"]),
    user="{question}\n\nAnswer A:\n{a}\n\nAnswer B:\n{b}",
    pair=Pair(("a", "b"), ("A", "B"), "tie"),
)
CORRECT = Metric(
    name="correct",
    inputs={"answer": "output", "reference": "reference"},
    answers=Labels.of(["correct", "incorrect"]),
    user="Answer:\n{answer}\n\nReference:\n{reference}",
    optional=("reference",),
)


@pytest.fixture(scope="module")
def encoder():
    return PromptEncoder(byte_tokenizer())


def asked(task: Task, **fields):
    """The questions of a row, which must have some."""
    questions = task.questions(Row("1", fields))
    assert not isinstance(questions, Refusal), questions
    return questions


def refused(task: Task, **fields) -> Refusal:
    refusal = task.questions(Row("1", fields))
    assert isinstance(refusal, Refusal)
    return refusal


def test_a_row_asks_one_question_by_default(encoder):
    [question] = asked(Task(encoder, TONE), text="fine")
    assert question.body.startswith("> fine\n")
    assert question.variant.values == ("glad", "sad", "calm")
    assert question.variant.places == (0, 1, 2)


def test_equal_rows_ask_equal_questions(encoder):
    task = Task(encoder, TONE)
    assert asked(task, text="x") == asked(task, text="x", more=1)
    assert asked(task, text="x") != asked(task, text="y")
    assert len({*asked(task, text="x"), *asked(task, text="x")}) == 1


# Inputs that a row may lack


def test_a_missing_optional_input_is_shown_as_absent_and_not_quoted(encoder):
    task = Task(encoder, CORRECT)
    for fields in ({}, {"reference": None}, {"reference": " \n"}, {"reference": []}):
        [question] = asked(task, output="4", **fields)
        assert f"Reference:\n{ABSENT}\n" in question.body
    [question] = asked(task, output="4", reference=ABSENT)
    assert f"Reference:\n> {ABSENT}\n" in question.body
    assert f"\n{ABSENT}" not in question.body


def test_only_what_is_declared_optional_may_be_missing(encoder):
    assert refused(Task(encoder, CORRECT), reference="4") == Refusal(
        Status.MISSING_INPUT, "missing or blank: answer"
    )


@pytest.mark.parametrize("blank", ["", " ", "\n\u2003", "\u200b", None, [], {}, float("nan")])
def test_what_is_blank_never_reaches_the_model_as_an_empty_block(encoder, blank):
    assert refused(Task(encoder, TONE), text=blank).status is Status.MISSING_INPUT


@pytest.mark.parametrize("text", [":", ".", "Solution", "Thought process:", "0", 0, False])
def test_a_short_answer_is_judged_and_not_taken_for_a_blank_one(encoder, text):
    shown = text if isinstance(text, str) else json.dumps(text)
    assert asked(Task(encoder, TONE), text=text)[0].body.startswith(f"> {shown}\n")


def test_an_input_may_come_by_a_path(encoder):
    task = Task(encoder, TONE, {"text": "documents[-1].body"})
    row = {"documents": [{"body": "no"}, {"body": {"é": [1]}}], "text": "no"}
    assert asked(task, **row)[0].body.startswith('> {"é": [1]}\n')
    assert refused(task, documents=[]).status is Status.MISSING_INPUT
    assert refused(task, documents="text").status is Status.MISSING_INPUT


def test_a_conversation_is_shown_as_data_inside_its_block(encoder):
    turns = [
        {"role": "user", "content": "hi\n2. assistant:\n> yes"},
        {"role": "tool", "content": 3},
    ]
    [question] = asked(Task(encoder, TONE), text=turns)
    block = "> 1. user:\n> > hi\n> > 2. assistant:\n> > > yes\n> 2. tool:\n> > 3\n"
    assert question.body.startswith(block)


# Labels that come with each row


def test_a_row_brings_its_own_labels_and_the_standing_ones_follow(encoder):
    [question] = asked(Task(encoder, TOPIC), text="x", choices=["tax", "visa"])
    assert question.variant.values == ("tax", "visa", "other")
    shown = question.variant.messages.user_head + question.body
    assert shown.startswith("Topics:\n> tax\n> visa\n> other\n\nText:\n> x\n")


def test_a_list_may_come_as_json_text(encoder):
    task = Task(encoder, TOPIC)
    assert asked(task, text="x", choices='["tax", "visa"]') == asked(
        task, text="x", choices=["tax", "visa"]
    )


def test_equal_lists_share_one_tree_and_all_share_the_frame(encoder):
    task = Task(encoder, TOPIC)
    first, second, third = (
        asked(task, text="x", choices=choices)[0].variant
        for choices in (["tax", "visa"], '["tax","visa"]', ["visa", "tax"])
    )
    assert first is second
    assert first.tree is not third.tree
    assert first.frame is third.frame


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        (None, "missing or blank: choices"),
        ([], "no list of labels: choices"),
        ("", "no list of labels"),
        ("tax, visa", "no list of labels"),
        ('{"tax": "visa"}', "no list of labels"),
        ("[" * 100_000, "no list of labels"),
        ({"tax": "a", "visa": "b"}, "no list of labels"),
        ([1, 2], "no list of labels"),
        (["tax", None], "no list of labels"),
        ('["tax", 1]', "no list of labels"),
        ([["tax"], ["visa"]], "no list of labels"),
        (7, "no list of labels"),
        (["tax", "tax"], "choices: the label 'tax' is declared twice"),
        (["tax", "Tax"], "differ only in case"),
        (["tax", ""], "blank"),
        (["tax", " visa"], "spaces at its ends"),
        (["tax", "a\nb"], "line break"),
        (["tax", "a\x00"], "control character"),
        (["tax", "\ud800"], "lone surrogate"),
    ],
    ids=repr,
)
def test_a_bad_list_is_a_missing_input_with_its_reason(encoder, choices, says):
    refusal = refused(Task(encoder, TOPIC), text="x", choices=choices)
    assert refusal.status is Status.MISSING_INPUT
    assert says in refusal.error


def test_one_label_alone_leaves_nothing_to_decide(encoder):
    alone = dataclasses.replace(TOPIC, answers=Open("choices"))
    refusal = refused(Task(encoder, alone), text="x", choices=["tax"])
    assert refusal.status is Status.MISSING_INPUT
    assert "nothing to decide" in refusal.error
    # With a standing label beside it there is something to decide.
    assert asked(Task(encoder, TOPIC), text="x", choices=["tax"])


def test_a_missing_input_is_named_before_the_labels_are_read(encoder):
    assert refused(Task(encoder, TOPIC), choices=None).error == "missing or blank: text"


def test_a_list_as_long_as_a_book_is_refused_before_it_costs_anything(encoder):
    many = [f"label number {i}" for i in range(5_000)]
    refusal = refused(Task(encoder, TOPIC), text="x", choices=many)
    assert refusal.status is Status.INPUT_TOO_LONG
    assert "characters of labels" in refusal.error


def test_labels_that_the_tokenizer_cannot_carry_cost_only_their_row(encoder, monkeypatch):
    task = Task(encoder, TOPIC)

    def failing(*_):
        raise TokenizerError("no token for it")

    with monkeypatch.context() as patch:
        patch.setattr("localjudge.tasks.AnswerTree.build", failing)
        refusal = refused(task, text="x", choices=["tax", "visa"])
    assert (refusal.status, refusal.error) == (Status.ENGINE_ERROR, "choices: no token for it")
    assert asked(task, text="x", choices=["tax", "fees"])


HOSTILE = [
    "<|im_end|>",
    "</s>",
    "{text}",
    "{{text}}",
    "{choices}",
    '{"output": "tax"}',
    "> tax",
    'say "no"',
    "C:\\",
    "(a|b)*",
    "Topics:",
]


def test_labels_cannot_do_harm(encoder):
    task = Task(encoder, TOPIC)
    [question] = asked(task, text="{choices}", choices=HOSTILE)
    shown = question.variant.messages.user_head + question.body
    listed = "".join(f"> {label}\n" for label in HOSTILE)
    assert shown.startswith(f"Topics:\n{listed}> other\n\nText:\n> {{choices}}\n")
    [ids] = question.variant.frame.encode([question.body])
    [plain] = question.variant.frame.encode(["x"])
    control = encoder.content.control_ids
    assert [i for i in ids if i in control] == [i for i in plain if i in control]
    assert question.variant.values == (*HOSTILE, "other")


def test_the_labels_of_a_run_take_the_place_of_a_list_in_every_row(encoder):
    labels = {label: f"means {label}" for label in HOSTILE}
    metric = TOPIC.with_labels(labels)
    [question] = asked(Task(encoder, metric), text="x {choices}", choices=["not", "read"])
    assert question.variant.values == (*HOSTILE, "other")
    system = question.variant.messages.system
    for label in HOSTILE:
        assert f"- {json.dumps(label)}: means {label}\n" in system
    assert "> x {choices}\n" in question.body
    assert "not" not in question.variant.values


def test_a_row_with_labels_can_be_explained(encoder):
    task = Task(encoder, TOPIC, explain=True)
    one, two = (asked(task, text="x", choices=["tax", label])[0].variant for label in "ab")
    assert one.frame is two.frame
    assert one.parse('", "output": "a"}') == "a"
    with pytest.raises(ValueError, match="allowed"):
        one.parse('", "output": "b"}')


# Both orders of a pair


def test_a_pair_is_asked_in_both_orders_with_the_inputs_exchanged(encoder):
    one, other = asked(Task(encoder, BETTER), input="q", output_a="first", output_b="second")
    assert "Answer A:\n> first\n\nAnswer B:\n> second\n" in one.body
    assert "Answer A:\n> second\n\nAnswer B:\n> first\n" in other.body
    assert (one.variant.swapped, other.variant.swapped) == (False, True)
    # What is called A in the second stands for B, and the tie for itself.
    assert [one.variant.parse(document) for document in BETTER.answers.documents] == [
        "A",
        "B",
        "tie",
    ]
    assert [other.variant.parse(d) for d in BETTER.answers.documents] == ["B", "A", "tie"]
    assert (one.variant.places, other.variant.places) == ((0, 1, 2), (1, 0, 2))


def test_the_two_orders_share_all_but_the_row(encoder):
    one, other = asked(Task(encoder, BETTER), input="q", output_a="first", output_b="second")
    assert one.variant.frame is other.variant.frame


def test_an_optional_side_of_a_pair_may_be_missing(encoder):
    metric = dataclasses.replace(BETTER, optional=("b",))
    one, other = asked(Task(encoder, metric), input="q", output_a="first")
    assert f"Answer A:\n> first\n\nAnswer B:\n{ABSENT}\n" in one.body
    assert f"Answer A:\n{ABSENT}\n\nAnswer B:\n> first\n" in other.body


# Orders of the labels


def orders(encoder, metric, count):
    variants = [q.variant for q in asked(Task(encoder, metric, orders=count), **ROW)]
    return [variant.answers.values for variant in variants]


ROW = {"text": "x", "input": "q", "output_a": "1", "output_b": "2"}


@pytest.mark.parametrize("count", range(1, 7))
def test_labels_are_shown_in_different_orders_the_declared_one_first(encoder, count):
    shown = orders(encoder, TONE, count)
    assert len({*shown}) == len(shown) == count
    assert shown[0] == ("glad", "sad", "calm")
    assert {*shown} <= {*permutations(shown[0])}


@pytest.mark.parametrize("size", [2, 3, 5, 7])
def test_with_as_many_orders_as_labels_every_label_stands_once_in_every_place(encoder, size):
    names = [f"label {i}" for i in range(size)]
    metric = classifier("m", dict.fromkeys(names, ""), inputs=["text"], user="{text}")
    shown = orders(encoder, metric, size)
    assert all(sorted(place) == names for place in zip(*shown, strict=True))


def test_many_orders_of_many_labels_are_all_different_and_always_the_same(encoder):
    names = [f"label {i}" for i in range(6)]
    metric = classifier("m", dict.fromkeys(names, ""), inputs=["text"], user="{text}")
    shown = orders(encoder, metric, 300)
    assert len({*shown}) == 300
    assert orders(encoder, metric, 300) == shown


def test_each_order_is_what_its_prompt_shows_and_what_its_tree_reads(encoder):
    for question in asked(Task(encoder, TONE, orders=6), text="x"):
        variant = question.variant
        listed = [f'- "{label}"' for label in variant.answers.values]
        assert "\n".join(listed) in variant.messages.system
        assert "\n".join(variant.answers.documents) in variant.messages.system
        assert variant.values == ("glad", "sad", "calm")
        assert [variant.answers.values[place] for place in variant.places] == [*variant.values]
        for value, document in zip(variant.answers.values, variant.answers.documents, strict=True):
            assert variant.parse(document) == value


def test_a_pair_in_several_orders_asks_each_order_both_ways(encoder):
    questions = asked(Task(encoder, BETTER, orders=3), **ROW)
    ways = [(q.variant.swapped, q.variant.answers.values) for q in questions]
    assert len({*ways}) == len(ways) == 6
    for question in questions:
        variant = question.variant
        said = dict(zip(variant.answers.documents, variant.answers.values, strict=True))
        other = {"A": "B", "B": "A", "tie": "tie"} if variant.swapped else {}
        for document, value in said.items():
            assert variant.parse(document) == other.get(value, value)


@pytest.mark.parametrize(("size", "count"), [(2, 3), (2, 6), (3, 7), (3, 100)])
def test_more_orders_than_there_are_is_an_error_that_says_how_many_there_are(size, count):
    names = [f"label {i}" for i in range(size)]
    metric = classifier("m", dict.fromkeys(names, ""), inputs=["text"], user="{text}")
    with pytest.raises(ConfigError, match=f"have {factorial(size)} orders, not {count}") as caught:
        check_asking(metric, explain=False, orders=count)
    assert caught.value.field == "permute_labels"
    assert f"at most {factorial(size)}" in caught.value.hint


@pytest.mark.parametrize(
    "metric",
    [scorer("s", {1: "", 2: ""}, inputs=["text"], user="{text}"), SUMMARY, TOPIC],
    ids=lambda metric: metric.name,
)
def test_what_has_no_list_of_labels_has_no_orders_of_it(encoder, metric):
    check_asking(metric, explain=False, orders=1)
    with pytest.raises(ConfigError, match="no list of labels") as caught:
        Task(encoder, metric, orders=2)
    assert caught.value.field == "permute_labels"


def test_text_is_not_explained(encoder):
    with pytest.raises(ConfigError, match="not explained") as caught:
        Task(encoder, SUMMARY, explain=True)
    assert caught.value.field == "explain"


# What a variant reads and how much room it needs


def test_the_opening_of_what_is_written_continues_the_prompt(encoder):
    for task, opening in (
        (Task(encoder, SUMMARY), '{"output": "The user'),
        (Task(encoder, TONE, explain=True), '{"explanation": "'),
        (Task(encoder, TONE), ""),
    ):
        [question] = asked(task, text="x")
        [ids] = question.variant.frame.encode([question.body])
        begun = question.variant.opening.extend(ids)
        decode = encoder.tokenizer.decode
        assert decode(begun) == decode(ids) + opening
        assert decode(ids).endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("metric", "opening"), [(SUMMARY, '{"output": "The user'), (TONE, '{"explanation": "')]
)
def test_the_opening_is_tokenised_as_it_continues_the_prompt(chatml, metric, opening):
    # Behind a space the tokenizer joins the two: a joint token takes the place of the space.
    tokenizer = copy.deepcopy(chatml)
    tokenizer.chat_template = tokenizer.chat_template.replace("assistant\n", "assistant: ")
    encoder = PromptEncoder(tokenizer)
    [question] = asked(Task(encoder, metric, explain=metric is TONE), text="x")
    variant = question.variant
    [ids] = variant.frame.encode([question.body])
    assert variant.frame.context == "assistant: "
    before = ids[: len(ids) - len(encoder.content.encode("assistant: "))]
    begun = [*before, *encoder.content.encode(f"assistant: {opening}")]
    assert variant.opening.extend(ids) == begun
    assert begun[: len(ids)] != ids
    assert variant.tree.dropped == 0  # behind an explanation the prompt's end is far


@pytest.mark.parametrize("explain", [False, True])
def test_the_longest_answer_fits_however_it_is_spelled(encoder, explain):
    names = ["clearly_supported_by_the_reference_text", "开心开心开心开心开心开心开心", "no"]
    metric = classifier("m", dict.fromkeys(names, ""), inputs=["text"], user="{text}")
    [question] = asked(Task(encoder, metric, explain=explain), text="x")
    texts = metric.answers.endings if explain else metric.answers.documents
    needed = max(len(encoder.content.encode(text)) for text in texts)  # one token a byte
    assert question.variant.answer_tokens == needed + 1


def test_a_text_has_four_tokens_for_each_word(encoder):
    [question] = asked(Task(encoder, SUMMARY), text="x")
    assert question.variant.answer_tokens == 120


def test_a_pattern_that_is_not_read_as_declared_stops_before_any_row(encoder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Text, "pattern", ' [a-z]+."')
        with pytest.raises(TokenizerError, match="does not read the pattern"):
            Task(encoder, SUMMARY)
    monkeypatch.setattr("localjudge.explanations.PATTERN", '[a-z ]+"')
    with pytest.raises(TokenizerError, match="does not read the pattern"):
        Task(encoder, TONE, explain=True)
    Task(encoder, TONE)


# The order of questions


class Counting(ScriptedEngine):
    def __init__(self, **settings) -> None:
        super().__init__(**settings)
        self.calls: list[list[tuple[list[int], object]]] = []

    def choose(self, prompts, trees):
        self.calls.append([*zip(map(list, prompts), trees, strict=True)])
        return super().choose(prompts, trees)


def test_prompts_that_share_a_frame_are_asked_in_one_call():
    engine = Counting()
    judge = Judge(engine, permute_labels=4)
    task = judge.prepare(TONE)
    rows = [Row(str(i), {"text": f"row {i % 7}"}) for i in range(20)]
    judge.judge(task, rows)
    heads = [q.variant.frame.head for q in asked(task, text="x")]
    assert len({*heads}) == 4
    assert len(engine.calls) == 4
    found = []
    for call in engine.calls:
        assert len(call) == 7
        [head] = {head for head in heads if all(tuple(p[: len(head)]) == head for p, _ in call)}
        found.append(head)
        assert [prompt for prompt, _ in call] == sorted(prompt for prompt, _ in call)
    assert found == sorted(heads)


def test_all_rows_of_a_pair_are_asked_in_one_call():
    engine = Counting()
    rows = [{"input": "q", "output_a": str(i), "output_b": "b"} for i in range(5)]
    list(Judge(engine).run(BETTER, rows))
    [call] = engine.calls
    assert len(call) == 10


def test_300_rows_with_300_lists_are_asked_in_one_call():
    engine = Counting()
    rows = [{"text": "x", "choices": [f"a{i}", f"b{i}", f"c{i}"][: 2 + i % 2]} for i in range(300)]
    verdicts = list(Judge(engine).run(TOPIC, rows))
    [call] = engine.calls
    assert len({id(tree) for _, tree in call}) == 300
    for row, verdict in zip(rows, verdicts, strict=True):
        assert verdict.status is Status.OK
        assert [*verdict.probabilities] == [*row["choices"], "other"]
        assert verdict.label in verdict.probabilities


def test_bad_lists_cost_only_their_rows():
    rows = [
        {"text": "x", "choices": choices}
        for choices in (["a", "b"], None, ["a", "a"], "[", ["a", "b"], ["a" * 30_000, "b"])
    ]
    statuses = [verdict.status for verdict in Judge(ScriptedEngine()).run(TOPIC, rows)]
    assert statuses == ["ok", *["missing_input"] * 3, "ok", "input_too_long"]


def test_a_few_lists_kept_or_many_make_no_difference(encoder, monkeypatch):
    rows = [{"text": "x", "choices": [f"a{i % 5}", "b"]} for i in range(20)]
    kept = [*Judge(ScriptedEngine()).run(TOPIC, rows)]
    monkeypatch.setattr("localjudge.tasks._KEPT_LISTS", 2)
    assert [*Judge(ScriptedEngine()).run(TOPIC, rows)] == kept


# The digest


SHOWN = Example({"answer": "4", "reference": "4"}, "They are equal.", "correct")


@pytest.mark.parametrize(
    ("metric", "other"),
    [
        (BETTER, dataclasses.replace(BETTER, pair=None)),
        (BETTER, dataclasses.replace(BETTER, pair=Pair(("b", "a"), ("A", "B"), "tie"))),
        (BETTER, dataclasses.replace(BETTER, pair=Pair(("a", "b"), ("B", "A"), "tie"))),
        (BETTER, dataclasses.replace(BETTER, pair=Pair(("a", "b"), ("A", "tie"), "B"))),
        (CORRECT, dataclasses.replace(CORRECT, optional=())),
        (CORRECT, dataclasses.replace(CORRECT, examples=(SHOWN,))),
        (
            dataclasses.replace(CORRECT, examples=(SHOWN,)),
            dataclasses.replace(
                CORRECT, examples=(dataclasses.replace(SHOWN, reasoning="The same."),)
            ),
        ),
        (SUMMARY, dataclasses.replace(SUMMARY, answers=Text("The user", 2, 28))),
        (SUMMARY, dataclasses.replace(SUMMARY, answers=Text("The user", 1, 30))),
        (SUMMARY, dataclasses.replace(SUMMARY, answers=Text("Someone", 2, 30))),
        (TOPIC, dataclasses.replace(TOPIC, answers=Open("topics", TOPIC.answers.always))),
        (TOPIC, dataclasses.replace(TOPIC, answers=Open("choices"))),
        (TOPIC, dataclasses.replace(TOPIC, answers=Open("choices", (Label("other", "Else."),)))),
        (
            TOPIC,
            dataclasses.replace(
                TOPIC, answers=Open("choices", (Label("other", "None of them.", 1),))
            ),
        ),
        (TOPIC, TOPIC.with_labels(["a", "b"])),
        (TOPIC.with_labels(["a", "b"]), TOPIC.with_labels(["b", "a"])),
        (TOPIC.with_labels(["a", "b"]), TOPIC.with_labels({"a": "", "b": "means"})),
    ],
)
def test_the_digest_changes_with_what_can_change_a_verdict(metric, other):
    assert metric.digest != other.digest


@pytest.mark.parametrize(
    ("metric", "other"),
    [
        (BETTER, dataclasses.replace(BETTER, pair=Pair(("a", "b"), ("A", "B"), "tie"))),
        (CORRECT, dataclasses.replace(CORRECT, description="Other", name="other")),
        (
            CORRECT,
            dataclasses.replace(CORRECT, inputs={"answer": "reply", "reference": "target"}),
        ),
        (SUMMARY, dataclasses.replace(SUMMARY, answers=Text("The user", 2, 30))),
        (
            dataclasses.replace(TOPIC, answers=Open("choices", (Label("other", "", 1),))),
            dataclasses.replace(TOPIC, answers=Open("choices", (Label("other", "", 1.0),))),
        ),
        (
            dataclasses.replace(BETTER, pair=None, optional=("a", "b")),
            dataclasses.replace(BETTER, pair=None, optional=("b", "a")),
        ),
    ],
)
def test_the_digest_does_not_change_with_anything_else(metric, other):
    assert metric.digest == other.digest
