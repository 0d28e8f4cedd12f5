"""The benchmarks run from start to end on a toy model; what they measure is not tested here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from localjudge.engines import ENGINES

ROOT = Path(__file__).parent.parent
KEYS = {
    "model",
    "rows",
    "rows_per_s",
    "ratio_to_limit",
    "ratio_to",
    "valid_share",
    "roofline_share",
    "machine",
    "versions",
}


def run(script: str, *options: str, home: Path) -> list[str]:
    """Run a benchmark and return the lines that it printed."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LOCALJUDGE_HOME": str(home),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *options],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def throughput(tmp_path: Path, model: Path, *options: str, ways: list[str]) -> dict[str, Any]:
    sizes = ["--rows", "6", "--slow-rows", "3", "--repeats", "2"]
    files = ["--model", str(model), "--json", str(tmp_path / "figures.json")]
    lines = run("throughput.py", *files, *sizes, *options, "--ways", *ways, home=tmp_path)
    document: dict[str, Any] = json.loads(lines[-1])
    assert document == json.loads((tmp_path / "figures.json").read_text())
    assert document.keys() >= KEYS
    assert set(document["rows_per_s"]) == set(ways)
    shown = run("throughput.py", "--show", str(tmp_path / "figures.json"), home=tmp_path)
    assert shown == lines[:-1]
    return document


def test_throughput_compares_localjudge_on_transformers_with_the_other_ways(
    tmp_path: Path, toy: Path
) -> None:
    document = throughput(
        tmp_path,
        toy,
        ways=["localjudge-transformers", "limit-transformers", "outlines-transformers"],
    )
    rates = document["rows_per_s"]
    assert document["rows"] == 6
    assert document["ratio_to_limit"] == document["ratio_to"] == {}
    assert document["ratio_to_of_transformers"]["outlines-transformers"] == pytest.approx(
        rates["localjudge-transformers"] / rates["outlines-transformers"]
    )
    assert document["valid_share"] == {
        "localjudge-transformers": 1.0,
        "outlines-transformers": 1.0,
    }
    assert {(item["way"], item["cache"], item["rows"]) for item in document["details"]} == {
        ("localjudge-transformers", "cold", 6),
        ("localjudge-transformers", "warm", 6),
        ("limit-transformers", "cold", 6),
        ("limit-transformers", "warm", 6),
        ("outlines-transformers", "none", 3),
    }
    assert all(len(item["seconds"]) == 2 for item in document["details"])


@pytest.mark.vllm
@pytest.mark.skipif(
    not find_spec("vllm") or "vllm" not in ENGINES, reason="the engine vLLM is not installed"
)
def test_throughput_compares_localjudge_on_vllm_with_the_other_ways(
    tmp_path: Path, toy: Path
) -> None:
    document = throughput(
        tmp_path,
        toy,
        "--toy",
        "--vllm-arg",
        "enforce_eager=true",  # nothing is compiled
        ways=["localjudge-vllm", "guided-outlines", "limit", "guided-xgrammar", "free-text"],
    )
    rates = document["rows_per_s"]
    assert document["ratio_to_limit"]["localjudge-vllm"] == pytest.approx(
        rates["localjudge-vllm"] / rates["limit"]
    )
    assert document["ratio_to"].keys() == {"guided-outlines", "guided-xgrammar", "free-text"}
    assert document["valid_share"]["localjudge-vllm"] == 1.0
    assert "limit" not in document["valid_share"]
    assert all(0 < share < 1 for share in document["roofline_share"].values())


def test_host_path_judges_every_row_and_accounts_for_the_time(tmp_path: Path, toy: Path) -> None:
    lines = run("host_path.py", "--model", str(toy), "--rows", "200", home=tmp_path)
    document = json.loads(lines[-1])
    assert document["rows"] == document["ok"] == 200
    assert sum(document["stage_cpu_s"].values()) == pytest.approx(200 / document["rows_per_cpu_s"])
    assert {"read", "render", "encode", "store: save"} <= document["stage_cpu_s"].keys()
    assert document["machine"]["cores"] == 1
    assert document["memory_growth_mb"] >= 0


def test_generated_rows_are_all_distinct_and_the_same_every_time() -> None:
    code = (
        "import json; from workload import make_rows;"
        "print(json.dumps([[*make_rows(5000)], [*make_rows(5000)], [*make_rows(50, seed=1)]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])},
        check=True,
    )
    rows, again, others = json.loads(done.stdout)
    assert rows == again
    texts = [row["output"] for row in rows + others]
    assert len(set(texts)) == len(texts) == 5050
    assert len({row["id"] for row in rows + others}) == 5050
    assert 38 <= sum(len(text.split()) for text in texts) / len(texts) <= 46


def test_agreement_compares_every_way_and_goes_on_where_it_was_stopped(
    tmp_path: Path, toy: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    files = {
        "text_sentiment-vader": [("negative", "positive", "neutral")[i % 3] for i in range(24)],
        "llm_text_frustration": [1 + i % 5 for i in range(24)],
        "unknown": ["x"] * 24,
    }
    for name, labels in files.items():
        rows = [
            {"id": str(i), "text": f"text {i}", "input": f"text {i}", "label": label}
            for i, label in enumerate(labels)
        ]
        path = data / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = tmp_path / "out"
    options = ["--data", str(data), "--model", str(toy), "--engine", "transformers"]
    options += ["--out", str(out), "--json", str(tmp_path / "figures.json")]
    run("agreement.py", *options, home=tmp_path)
    found = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert found.keys() == files.keys() - {"unknown"}
    for name, ways in found.items():
        assert ways["rows"] == 24
        for way in ("raw", "free_text", "majority"):
            figure = ways[way]["accuracy_failures_wrong"]
            assert figure["low"] is None or figure["low"] <= figure["value"] <= figure["high"]
        assert ways["raw"]["coverage"]["value"] == 1
        assert ways["majority"]["kappa"]["value"] == 0
        assert ways["calibrated"]["coverage"]["value"] == 1
        assert (out / f"{toy.name}-transformers" / name / "report.html").exists()
    assert found["text_sentiment-vader"]["fitted"]["coverage"]["value"] == 1
    assert "too few labels" in found["llm_text_frustration"]["fitted"]["reason"]
    judged = out / f"{toy.name}-transformers" / "text_sentiment-vader" / "run" / "verdicts.jsonl"
    before = judged.stat().st_mtime_ns
    run("agreement.py", *options, "--only", "text_sentiment-vader", home=tmp_path)
    again = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert again.keys() == {"text_sentiment-vader"}
    for way in ("raw", "calibrated", "free_text", "majority"):  # the head reads the model anew
        assert again["text_sentiment-vader"][way] == found["text_sentiment-vader"][way]
    assert judged.stat().st_mtime_ns == before


def test_a_free_answer_is_read_as_json_or_as_the_only_label_it_names() -> None:
    labels = ["refused", "not_refused"]
    texts = {
        'Sure! {"output": "refused"} since it is so': "refused",
        '{"x": 1} {"output": "not_refused"}': "not_refused",
        "It is not_refused.": "not_refused",
        "refused or not_refused": None,
        '{"output": "maybe"}': None,
        '{"output": ["refused"': "refused",
        "": None,
    }
    code = "import json, sys; from agreement import parsed; texts, labels = json.load(sys.stdin); "
    code += "print(json.dumps([parsed(text, labels) for text in texts]))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([list(texts), labels]),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])},
        check=True,
    )
    assert json.loads(done.stdout) == list(texts.values())


def test_data_sets_are_fetched_by_the_table(tmp_path: Path) -> None:
    """A local folder stands in for a repository of the hub: `datasets` opens both alike."""
    source = tmp_path / "source"
    source.mkdir()
    lines = [{"tweet": f"t{i}", "class": i % 3, "count": 1} for i in range(6)]
    (source / "train.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    code = f"""if True:
        import json
        from labelled import entries, fetched
        hub = entries()["toxicity-davidson"]["hub"] | {{"repository": {str(source)!r}}}
        print(json.dumps(list(fetched(hub))))
        try:
            list(fetched(hub | {{"label": "klass"}}))
        except KeyError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")]),
             "HF_HOME": str(tmp_path / "hf")},
        check=True,
    )  # fmt: skip
    rows, missing = done.stdout.splitlines()
    assert json.loads(rows)[:3] == [
        {"id": "0", "text": "t0", "label": "toxic"},
        {"id": "1", "text": "t1", "label": "toxic"},
        {"id": "2", "text": "t2", "label": "non-toxic"},
    ]
    assert "no column klass among" in missing


def test_the_coverage_of_rates_is_measured_for_every_setting(tmp_path: Path) -> None:
    document = json.loads(run("rates_coverage.py", "--trials", "4", home=tmp_path)[-1])
    assert len(document["settings"]) == 72
