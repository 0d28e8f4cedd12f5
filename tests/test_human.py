"""The shipped metrics over human-labelled rows, with the embedded model: every row is answered."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from localjudge.errors import ModelError
from localjudge.judge import Judge
from localjudge.library import find_metric
from localjudge.models import find_model
from localjudge.records import Status
from localjudge.tables import open_table

FILES = {
    "answer_refusal-xstest": ("llm_answer_refusal", {}),
    "text_sentiment-tweeteval": ("llm_text_sentiment", {"text": "text"}),
    "text_sentiment-vader": ("llm_text_sentiment", {"text": "text"}),
    "text_toxicity-convabuse": ("llm_text_toxicity", {"text": "text"}),
    "toxicity-davidson": ("toxicity", {"text": "text"}),
    "toxicity-hatecheck": ("toxicity", {"text": "text"}),
    "toxicity-tweeteval_offensive": ("toxicity", {"text": "text"}),
}

pytestmark = [pytest.mark.human, pytest.mark.model]


@pytest.fixture(
    scope="module", params=["transformers", pytest.param("vllm", marks=pytest.mark.vllm)]
)
def judge(request):
    if request.param == "vllm" and find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    try:
        folder = find_model("smollm2-135m")
    except ModelError as error:
        pytest.skip(str(error))
    with Judge.open(folder.path, engine=request.param) as judge:
        yield judge


@pytest.mark.parametrize("name", FILES)
def test_every_row_has_a_legal_verdict_or_a_reason(judge, name):
    folder = os.environ.get("LOCALJUDGE_HUMAN_DATA")
    if not folder:
        pytest.skip("LOCALJUDGE_HUMAN_DATA names no folder of human-labelled rows")
    metric_name, mapping = FILES[name]
    metric = find_metric(metric_name)
    rows = list(open_table(Path(folder) / f"{name}.jsonl"))
    verdicts = list(judge.run(metric, rows, mapping=mapping))
    assert [verdict.id for verdict in verdicts] == [row.id for row in rows]
    for verdict in verdicts:
        if verdict.status is not Status.OK:
            assert verdict.error
            assert verdict.value is None
            continue
        assert verdict.value in metric.answers.values
        assert sum(verdict.probabilities.values()) == pytest.approx(1)
        assert 0 <= verdict.answer_mass <= 1
        assert verdict.confidence == max(verdict.probabilities.values())
        assert json.loads(verdict.to_json())["value"] == verdict.value
    assert sum(verdict.status is Status.OK for verdict in verdicts) >= 0.99 * len(rows)
