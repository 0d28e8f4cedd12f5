from pathlib import Path

import pytest

from localjudge.errors import MetricError
from localjudge.library import find_metric, shipped

# What existing dashboards rely on: kind, inputs with columns, answers with scores, direction.
FIVE = {step: float(step) for step in range(1, 6)}
SHIPPED = {
    "llm_answer_groundedness": (
        "classify",
        {"answer": "output", "context": "context"},
        {"grounded": 1.0, "ungrounded": 0.0},
        "maximize",
    ),
    "llm_answer_refusal": (
        "classify",
        {"answer": "output"},
        {"refused": 1.0, "not_refused": 0.0},
        "minimize",
    ),
    "llm_answer_relevancy": (
        "classify",
        {"question": "input", "answer": "output"},
        {"relevant": 1.0, "irrelevant": 0.0},
        "maximize",
    ),
    "llm_context_relevancy": (
        "classify",
        {"question": "input", "context": "context"},
        {"relevant": 1.0, "irrelevant": 0.0},
        "maximize",
    ),
    "llm_question_clarity": ("score", {"question": "input"}, FIVE, "maximize"),
    "llm_text_frustration": ("score", {"text": "input"}, FIVE, "minimize"),
    "llm_text_sentiment": (
        "classify",
        {"text": "input"},
        {"negative": -1.0, "neutral": 0.0, "positive": 1.0},
        "neutral",
    ),
    "llm_text_similarity": (
        "score",
        {"output": "output", "reference": "reference"},
        FIVE,
        "maximize",
    ),
    "llm_text_toxicity": ("score", {"text": "output"}, FIVE, "minimize"),
    "toxicity": ("classify", {"text": "output"}, {"toxic": 1.0, "non-toxic": 0.0}, "minimize"),
}


def test_the_shipped_metrics_are_these():
    assert list(shipped()) == sorted(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_metric_keeps_its_interface(name):
    metric = find_metric(name)
    answers = dict(zip(metric.answers.values, metric.answers.scores, strict=True))
    assert metric.name == name
    assert (metric.kind, dict(metric.inputs), answers, metric.direction) == SHIPPED[name]
    assert list(answers) == list(SHIPPED[name][2])
    assert list(metric.inputs) == list(SHIPPED[name][1])


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_metric_explains_every_answer_and_shows_varied_examples(name):
    metric = find_metric(name)
    outputs = [example.output for example in metric.examples]
    assert metric.description and metric.definition and metric.notes
    assert all(metric.answers.meanings)
    assert len(outputs) == 4
    assert len(set(outputs)) == min(4, len(metric.answers.values))
    assert all(example.reasoning for example in metric.examples)


@pytest.mark.parametrize("name", SHIPPED)
def test_words_quoted_in_an_examples_reasoning_stand_in_its_inputs(name):
    for example in find_metric(name).examples:
        inputs = " ".join(example.inputs.values()).casefold()
        for quoted in example.reasoning.split('"')[1::2]:
            assert quoted.casefold() in inputs


def test_a_metric_is_found_by_path(tmp_path, monkeypatch):
    text = shipped()["toxicity"].read_text()
    (tmp_path / "mine.toml").write_text(text.replace('"toxicity"', '"mine"'))
    (tmp_path / "plain").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert find_metric("mine.toml").name == "mine"
    assert find_metric(Path("mine.toml")).name == "mine"
    assert find_metric("./plain").path == Path("plain")


def test_an_unknown_name_brings_up_the_near_one():
    with pytest.raises(MetricError) as caught:
        find_metric("toxcity")
    assert "did you mean 'toxicity'?" in str(caught.value)
    assert "localjudge metrics" in str(caught.value)


def test_an_installed_package_finds_the_metrics_inside_itself(tmp_path, monkeypatch):
    (tmp_path / "localjudge" / "prompts").mkdir(parents=True)
    (tmp_path / "localjudge" / "prompts" / "a.toml").touch()
    monkeypatch.setattr("localjudge.library.__file__", str(tmp_path / "localjudge" / "library.py"))
    assert list(shipped()) == ["a"]
