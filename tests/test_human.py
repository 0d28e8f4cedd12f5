"""Every shipped metric over gold rows and human-labelled ones: each answer is an allowed one."""

from __future__ import annotations

import json
import os
import random
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from localjudge.answers import Open, Text, document
from localjudge.errors import ModelError
from localjudge.explanations import OPENING
from localjudge.judge import Judge
from localjudge.library import find_metric
from localjudge.models import find_model
from localjudge.records import Status
from localjudge.tables import open_table
from tests.conftest import toy_model

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
GOLD = sorted(path.stem for path in (BENCHMARKS / "gold").glob("*.jsonl"))
HUMAN = tomllib.loads((BENCHMARKS / "datasets.toml").read_text(encoding="utf-8"))
# Files of short texts, for a model that takes seconds to read a rubric.
SHORT = ["question_clarity-wellformed", "text_sentiment-vader", "toxicity-hatecheck"]


@pytest.fixture(
    scope="module", params=["transformers", pytest.param("vllm", marks=pytest.mark.vllm)]
)
def judge(request, tmp_path_factory, tokenizers):
    """A toy model that takes long prompts, on each engine."""
    if request.param == "vllm" and find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    folder = toy_model(tmp_path_factory.mktemp("long"), tokenizers["chatml"], positions=16_384)
    small = {"kv_cache_memory_bytes": "200000000", "enforce_eager": "true"}
    settings = {"engine_args": small} if request.param == "vllm" else {}
    with Judge.open(folder, engine=request.param, settings=settings) as judge:
        yield judge


@pytest.fixture(scope="module")
def embedded():
    """The embedded model."""
    try:
        folder = find_model("smollm2-135m")
    except ModelError as error:
        pytest.skip(str(error))
    with Judge.open(folder.path, engine="transformers") as judge:
        yield judge


def people(name: str, count: int):
    """A metric, its mapping, and a sample of rows that people labelled."""
    folder = os.environ.get("LOCALJUDGE_HUMAN_DATA")
    if not folder:
        pytest.skip("LOCALJUDGE_HUMAN_DATA names no folder of human-labelled rows")
    rows = list(open_table(Path(folder) / f"{name}.jsonl"))
    entry = HUMAN[name]
    return find_metric(entry["metric"]), random.Random(0).sample(rows, count), entry.get("map")


def check(judge, metric, rows, mapping=None) -> None:
    """Judge the rows; every one has an allowed answer, or, for text, a reason."""
    verdicts = list(judge.run(metric, rows, mapping=mapping))
    assert [verdict.id for verdict in verdicts] == [row.id for row in rows]
    for row, verdict in zip(rows, verdicts, strict=True):
        assert json.loads(verdict.to_json())["value"] == verdict.value
        answers = metric.answers
        if isinstance(answers, Text) and verdict.status is Status.TRUNCATED:
            assert verdict.value is None
            continue
        assert verdict.status is Status.OK, verdict.error
        space = answers.close(row.fields["choices"]) if isinstance(answers, Open) else answers
        assert space.parse(document(verdict.value)) == verdict.value
        if isinstance(answers, Text):
            continue
        assert list(verdict.probabilities) == [str(value) for value in space.values]
        assert sum(verdict.probabilities.values()) == pytest.approx(1)
        assert 0 <= verdict.answer_mass <= 1
        if not verdict.metadata.get("order_flip"):
            assert verdict.confidence == max(verdict.probabilities.values())


def check_explained(judge, metric, rows, mapping, monkeypatch) -> None:
    """Judge the rows with explanations; what the answer is read behind is the JSON of one."""
    if isinstance(metric.answers, Text):
        pytest.skip("text is not explained")
    read: list[str] = []
    choose = judge.engine.choose

    def recording(prompts, trees):
        read.extend(judge.engine.tokenizer.decode(list(prompt)) for prompt in prompts)
        return choose(prompts, trees)

    monkeypatch.setattr(judge.engine, "choose", recording)
    explained = Judge(judge.engine, explain=True, explain_tokens=24)
    verdicts = list(explained.run(metric, rows, mapping=mapping))
    texts = []
    for prompt in read:
        written = prompt[prompt.rindex(OPENING) :]
        answer = json.loads(written[: written.rindex(', "output":')] + ', "output": 0}')
        assert answer.keys() == {"explanation", "output"}
        texts.append(answer["explanation"])
    for verdict in verdicts:
        assert verdict.status is Status.OK, verdict.error
        assert verdict.explanation in texts


@pytest.mark.parametrize("name", GOLD)
def test_every_gold_row_has_an_allowed_answer(judge, name):
    check(judge, find_metric(name), list(open_table(BENCHMARKS / "gold" / f"{name}.jsonl")))


@pytest.mark.parametrize("name", GOLD)
def test_every_explanation_of_a_gold_row_is_json(judge, name, monkeypatch):
    rows = list(open_table(BENCHMARKS / "gold" / f"{name}.jsonl"))[:3]
    check_explained(judge, find_metric(name), rows, None, monkeypatch)


@pytest.mark.human
@pytest.mark.parametrize("name", HUMAN)
def test_rows_that_people_labelled_have_an_allowed_answer(judge, name):
    metric, rows, mapping = people(name, 10)
    check(judge, metric, rows, mapping)


@pytest.mark.human
@pytest.mark.parametrize("name", HUMAN)
def test_explanations_of_rows_that_people_labelled_are_json(judge, name, monkeypatch):
    metric, rows, mapping = people(name, 2)
    check_explained(judge, metric, rows, mapping, monkeypatch)


@pytest.mark.human
@pytest.mark.model
@pytest.mark.parametrize("name", SHORT)
def test_the_embedded_model_gives_allowed_answers_too(embedded, name):
    metric, rows, mapping = people(name, 2)
    check(embedded, metric, rows, mapping)
