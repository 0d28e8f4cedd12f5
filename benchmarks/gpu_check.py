"""Both engines on this machine in a few minutes: throughput, and whether they agree.

Each engine that is installed judges the same generated rows in a process of its own. Without
`--model` the weights are random: speed does not depend on them, and what the engines must agree on
is arithmetic. The last line is one JSON document.

    python benchmarks/gpu_check.py --model FOLDER --rows 2000
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import describe, versions
from workload import make_toy, make_workload

from localjudge.offline import go_offline

CLOSE = 0.05  # in bfloat16, two engines may differ by so much in a probability


def main() -> None:
    """Judge the rows with every engine, or with the one that a parent process asks for."""
    options = parse()
    go_offline()
    if options.engine:
        print(json.dumps(judge(options)))
        return
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        model = options.model or make_toy(Path(name) / "model", options.tokenizer)
        found = {engine: ask(engine, model, options) for engine in ("vllm", "transformers")}
    document = {
        "model": str(options.model or "random weights"),
        "rows": options.rows,
        "engines": {
            engine: {k: v for k, v in each.items() if k != "probabilities"}
            for engine, each in found.items()
        },
        "parity": parity(found),
        "machine": describe(),
        "versions": versions(),
    }
    print(json.dumps(document))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="model folder; random weights without it")
    parser.add_argument("--tokenizer", type=Path, help="model folder whose tokenizer is used then")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not (options.model or options.tokenizer):
        parser.error("give --model, or --tokenizer for random weights")
    return options


def ask(engine: str, model: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run this script for one engine; a failure is reported as it is."""
    print(f"judging {options.rows} rows with {engine}", file=sys.stderr, flush=True)
    command = [sys.executable, __file__, "--engine", engine, "--model", str(model)]
    done = subprocess.run(
        [*command, "--rows", str(options.rows)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "died"}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def judge(options: argparse.Namespace) -> dict[str, Any]:
    """Judge the rows; return the rate and every row's distribution."""
    from localjudge.judge import Judge

    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        work = make_workload(
            options.model, Path(name), rows=options.rows, warm_up=32, prompt_tokens=700
        )
        rows, warm_up = (
            [json.loads(line) for line in load.path.read_text(encoding="utf-8").splitlines()]
            for load in (work.measured, work.warm_up)
        )
    start = time.perf_counter()
    with Judge.open(options.model, engine=options.engine) as each:
        loaded = time.perf_counter()
        list(each.run(work.metric, warm_up))
        warm = time.perf_counter()
        verdicts = list(each.run(work.metric, rows))
        seconds = time.perf_counter() - warm
    return {
        "fingerprint": each.fingerprint,
        "load_seconds": round(loaded - start, 1),
        "rows_per_s": round(len(rows) / seconds, 1),
        "prompt_tokens_per_s": round(sum(v.prompt_tokens for v in verdicts) / seconds),
        "ok": sum(verdict.status == "ok" for verdict in verdicts),
        "probabilities": [[*(verdict.probabilities or {}).values()] for verdict in verdicts],
    }


def parity(found: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Compare the two engines row by row; None if only one of them is here."""
    both = [each["probabilities"] for each in found.values() if "probabilities" in each]
    if len(both) < 2:
        return None
    pairs = [*zip(*both, strict=True)]
    differences = [max(abs(p - q) for p, q in zip(*pair, strict=True)) for pair in pairs]
    flips = [
        min(sorted(p)[-1] - sorted(p)[-2] for p in pair)
        for pair in pairs
        if len({p.index(max(p)) for p in pair}) > 1
    ]
    return {
        "largest_difference": round(max(differences), 5),
        "mean_difference": round(sum(differences) / len(differences), 5),
        "other_label": len(flips),
        "largest_margin_of_those": round(max(flips, default=0.0), 5),
        "close": max(differences) < CLOSE,
    }


if __name__ == "__main__":
    main()
