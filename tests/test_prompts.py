"""The shipped metrics: what existing dashboards rely on, and what a good prompt holds."""

import pytest

from localjudge.answers import Open, Scale, Text
from localjudge.library import find_metric, shipped
from localjudge.messages import Messages
from localjudge.metrics import Pair
from localjudge.templates import CHOICES

FIVE = dict.fromkeys(range(1, 6))
# kind, input = column, answers with their scores, direction
SHIPPED = {
    "correctness": (
        "classify",
        {"input": "input", "output": "output", "reference": "reference"},
        {"correct": 1, "incorrect": 0},
        "maximize",
    ),
    "llm_answer_groundedness": (
        "classify",
        {"answer": "output", "context": "context"},
        {"grounded": 1, "ungrounded": 0},
        "maximize",
    ),
    "llm_answer_refusal": (
        "classify",
        {"answer": "output"},
        {"refused": 1, "not_refused": 0},
        "minimize",
    ),
    "llm_answer_relevancy": (
        "classify",
        {"question": "input", "answer": "output"},
        {"relevant": 1, "irrelevant": 0},
        "maximize",
    ),
    "llm_context_relevancy": (
        "classify",
        {"question": "input", "context": "context"},
        {"relevant": 1, "irrelevant": 0},
        "maximize",
    ),
    "llm_question_clarity": ("score", {"question": "input"}, FIVE, "maximize"),
    "llm_summarization": ("text", {"input": "input", "output": "output"}, {}, "neutral"),
    "llm_text_frustration": ("score", {"text": "input"}, FIVE, "minimize"),
    "llm_text_sentiment": (
        "classify",
        {"text": "input"},
        {"negative": -1, "neutral": 0, "positive": 1},
        "neutral",
    ),
    "llm_text_similarity": (
        "score",
        {"output": "output", "reference": "reference"},
        FIVE,
        "maximize",
    ),
    "llm_text_toxicity": ("score", {"text": "output"}, FIVE, "minimize"),
    "pairwise": (
        "classify",
        {"input": "input", "output_a": "output_a", "output_b": "output_b"},
        {"A": None, "B": None, "tie": None},
        "neutral",
    ),
    "topic": (
        "classify",
        {"input": "input", "output": "output"},
        {"other": None},
        "neutral",
    ),
    "toxicity": ("classify", {"text": "output"}, {"toxic": 1, "non-toxic": 0}, "minimize"),
}

each = pytest.mark.parametrize("name", SHIPPED)


def test_the_shipped_metrics_are_these():
    assert list(shipped()) == list(SHIPPED)


@each
def test_a_shipped_metric_keeps_its_interface(name):
    metric = find_metric(name)
    kind, inputs, answers, direction = SHIPPED[name]
    assert (metric.name, metric.kind, metric.direction) == (name, kind, direction)
    assert list(metric.inputs.items()) == list(inputs.items())
    assert list(metric.answers.values) == list(answers)
    assert list(metric.answers.scores) == list(FIVE if answers is FIVE else answers.values())


def test_what_is_special_about_some_of_them():
    assert find_metric("correctness").optional == ("reference",)
    assert find_metric("pairwise").pair == Pair(("output_a", "output_b"), ("A", "B"), "tie")
    assert find_metric("llm_summarization").answers == Text("The user", 2, 30)
    topic = find_metric("topic").answers
    assert isinstance(topic, Open)
    assert (topic.column, [label.name for label in topic.always]) == ("choices", ["other"])
    for name in set(SHIPPED) - {"correctness", "pairwise"}:
        assert (find_metric(name).optional, find_metric(name).pair) == ((), None)


@each
def test_a_shipped_metric_says_what_it_decides_and_what_every_answer_means(name):
    metric = find_metric(name)
    assert metric.description and metric.definition and metric.steps and metric.notes
    if not isinstance(metric.answers, Text):
        assert all(meaning.strip() for meaning in metric.answers.meanings)


@each
def test_a_shipped_metric_shows_examples_with_reasons(name):
    metric = find_metric(name)
    assert 2 <= len(metric.examples) <= 6
    assert all(example.reasoning.strip() for example in metric.examples)
    outputs = {example.output for example in metric.examples}
    assert len(outputs) >= min(len(metric.examples), len(metric.answers.values) or 2)


@each
def test_words_quoted_in_an_examples_reasoning_stand_in_its_inputs(name):
    for example in find_metric(name).examples:
        inputs = " ".join(example.inputs.values()).casefold()
        for quoted in example.reasoning.split('"')[1::2]:
            assert quoted.casefold() in inputs


@each
def test_a_reasoning_names_no_answer_but_its_own(name):
    metric = find_metric(name)
    if isinstance(metric.answers, Scale) or name == "pairwise":  # where A and B name the texts
        return
    for example in metric.examples:
        words = {word.strip('.,:;"') for word in example.reasoning.split()}
        assert words.isdisjoint(set(metric.answers.values) - {example.output})


@each
@pytest.mark.parametrize("explain", [False, True])
def test_a_prompt_is_short_and_whole(name, explain):
    metric = find_metric(name)
    messages = Messages(metric, explain)
    values = {name: "text" for name in (*metric.inputs, CHOICES)}
    prompt = f"{messages.system}\n\n{messages.user(values)}"
    assert len(prompt.split()) <= 700
    assert prompt == prompt.strip()
    assert "\n\n\n" not in prompt and "  " not in prompt
    assert not any(line.endswith(" ") for line in prompt.splitlines())
    assert prompt.splitlines()[-1].startswith("Answer with ")


def test_examples_show_an_optional_input_present_and_absent():
    given = ["reference" in example.inputs for example in find_metric("correctness").examples]
    assert True in given and False in given


def test_a_summary_in_an_example_names_nobody_and_nothing():
    for example in find_metric("llm_summarization").examples:
        for word in example.output.removeprefix("The user").replace(". The", ".").split():
            assert word.islower()


def test_topics_of_a_run_stand_with_their_meaning_and_no_example_with_another_list():
    metric = find_metric("topic").with_labels({"pets": "Animals at home.", "other": ""})
    system = Messages(metric).system
    assert '- "pets": Animals at home.\n- "other": None of the listed subjects' in system
    assert "Example" not in system
    assert (
        Messages(metric)
        .user({"input": "a", "output": "b"})
        .startswith("Subjects:\n(those listed above)\n\nThe user asked:\n> a\n")
    )
