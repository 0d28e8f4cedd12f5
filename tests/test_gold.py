"""The gold rows: legal, balanced, without repeats, and apart from the examples in the prompts."""

import json
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localjudge.answers import Open, document
from localjudge.library import find_metric

ROOT = Path(__file__).parents[1]
GOLD = ROOT / "benchmarks" / "gold"
PROMPTS = ROOT / "prompts"
ONE_TO_FIVE = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Shape:
    """What the rows of one metric hold; no labels where they are not one closed list."""

    columns: tuple[str, ...]
    labels: tuple[str | int, ...] = ()
    optional: tuple[str, ...] = ()


SHAPES = {
    "correctness": Shape(("input", "output"), ("correct", "incorrect"), ("reference",)),
    "llm_answer_groundedness": Shape(("output", "context"), ("grounded", "ungrounded"), ("input",)),
    "llm_answer_refusal": Shape(("output",), ("refused", "not_refused"), ("input",)),
    "llm_answer_relevancy": Shape(("input", "output"), ("relevant", "irrelevant")),
    "llm_context_relevancy": Shape(("input", "context"), ("relevant", "irrelevant")),
    "llm_question_clarity": Shape(("input",), ONE_TO_FIVE),
    "llm_summarization": Shape(("input", "output")),
    "llm_text_frustration": Shape(("input",), ONE_TO_FIVE),
    "llm_text_sentiment": Shape(("input",), ("negative", "neutral", "positive")),
    "llm_text_similarity": Shape(("output", "reference"), ONE_TO_FIVE),
    "llm_text_toxicity": Shape(("output",), ONE_TO_FIVE, ("input",)),
    "pairwise": Shape(("input", "output_a", "output_b"), ("A", "B", "tie")),
    "topic": Shape(("input", "output", "choices")),
    "toxicity": Shape(("output",), ("toxic", "non-toxic"), ("input",)),
}


def rows(metric: str) -> list[dict[str, Any]]:
    lines = (GOLD / f"{metric}.jsonl").read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    return [json.loads(line) for line in lines]


def texts(row: dict[str, Any], shape: Shape) -> dict[str, str]:
    """The text columns of a row: all that its metric reads, but for a list of choices."""
    names = (*shape.columns, *shape.optional)
    return {name: row[name] for name in names if name in row and name != "choices"}


def folded(text: str) -> str:
    return " ".join(text.casefold().split())


@pytest.fixture(params=sorted(path.stem for path in GOLD.glob("*.jsonl")))
def metric(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_every_metric_has_gold_rows() -> None:
    assert {path.stem for path in GOLD.glob("*.jsonl")} == set(SHAPES)


def test_every_row_has_the_columns_of_its_metric_and_no_other(metric: str) -> None:
    shape = SHAPES[metric]
    for row in rows(metric):
        needed = {"id", *shape.columns, "label", "difficulty", "why"}
        assert needed <= row.keys() <= needed | set(shape.optional), row["id"]


def test_ids_are_unique_over_all_files() -> None:
    ids = [row["id"] for path in GOLD.glob("*.jsonl") for row in rows(path.stem)]
    assert [name for name, count in Counter(ids).items() if count > 1] == []


def test_every_label_is_an_answer_of_the_metric(metric: str) -> None:
    for row in rows(metric):
        allowed = row["choices"] if "choices" in row else SHAPES[metric].labels
        legal = any(
            type(row["label"]) is type(answer) and row["label"] == answer for answer in allowed
        )
        assert legal or metric == "llm_summarization", row["id"]


def test_answers_are_balanced_in_number_and_difficulty(metric: str) -> None:
    shape, found = SHAPES[metric], rows(metric)
    assert len(found) >= 24
    counts = Counter((row["label"] if shape.labels else "", row["difficulty"]) for row in found)
    cells = [(answer, level) for answer in shape.labels or ("",) for level in ("easy", "hard")]
    assert counts == dict.fromkeys(cells, len(found) / len(cells))


def test_the_right_topic_stands_at_each_place_of_the_list_equally_often() -> None:
    found = rows("topic")
    for row in found:
        assert len(set(row["choices"])) == len(row["choices"]) == 5, row["id"]
        assert "other" in row["choices"], row["id"]
    places = Counter(row["choices"].index(row["label"]) for row in found)
    assert places == dict.fromkeys(range(5), len(found) / 5)


def test_every_summary_keeps_to_the_limits_and_names_nothing() -> None:
    for row in rows("llm_summarization"):
        summary = row["label"]
        sentences = re.split(r"(?<=[.!?])\s+", summary)
        assert summary.startswith("The user ") and summary.endswith("."), row["id"]
        assert len(sentences) <= 2 and len(summary.split()) <= 30, row["id"]
        # A capital or a digit inside a sentence would be a name, a number or an address.
        assert not any(re.search(r"[A-Z0-9]", sentence[1:]) for sentence in sentences), row["id"]


def test_every_answer_is_one_that_the_metric_allows(metric: str) -> None:
    answers = find_metric(metric).answers
    for row in rows(metric):
        space = answers.close(row["choices"]) if isinstance(answers, Open) else answers
        assert space.parse(document(row["label"])) == row["label"], row["id"]


def test_every_text_is_filled_and_every_reason_is_one_line(metric: str) -> None:
    for row in rows(metric):
        assert all(text.strip() for text in texts(row, SHAPES[metric]).values()), row["id"]
        assert row["why"].strip() and len(row["why"].splitlines()) == 1, row["id"]


def test_no_text_is_used_twice() -> None:
    seen: dict[str, str] = {}
    for path in sorted(GOLD.glob("*.jsonl")):
        for row in rows(path.stem):
            for text in texts(row, SHAPES[path.stem]).values():
                assert folded(text) not in seen, (row["id"], seen[folded(text)])
                seen[folded(text)] = row["id"]


def test_no_text_stands_among_the_examples_of_a_prompt(metric: str) -> None:
    prompt = PROMPTS / f"{metric}.toml"
    if not prompt.exists():
        pytest.skip("the metric has no prompt file")
    examples = tomllib.loads(prompt.read_text(encoding="utf-8")).get("examples", [])
    shown = {folded(str(text)) for example in examples for text in example["inputs"].values()}
    for row in rows(metric):
        for text in texts(row, SHAPES[metric]).values():
            assert folded(text) not in shown, row["id"]
