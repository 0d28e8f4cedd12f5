"""How fast is everything around the model, and does its memory grow with the number of rows?

`run_file` judges a file of generated rows with an engine that answers at once, on one core: rows
are read and checked, rendered, tokenised with a real model's tokenizer, and verdicts are stored.
No model is loaded. Time is also given as the processor's own, which other work on the machine does
not lengthen. Then the finished run is started again, which must find that nothing is left to do.
It needs Linux, which tells the memory in use. The last line is one JSON document.

    python benchmarks/host_path.py --model FOLDER
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the library reads it once

import argparse
import cProfile
import json
import pstats
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from localjudge.offline import go_offline

go_offline()

from machine import describe, versions  # noqa: E402
from workload import make_metric, make_rows  # noqa: E402

from localjudge import data_check  # noqa: E402
from localjudge import judge as judging  # noqa: E402
from localjudge import run as running  # noqa: E402
from localjudge.encoding import PromptFrame  # noqa: E402
from localjudge.engines.scripted import ScriptedEngine  # noqa: E402
from localjudge.store import RunStore  # noqa: E402
from localjudge.tables import Table  # noqa: E402
from localjudge.tasks import Task  # noqa: E402


def main() -> None:
    """Measure and report."""
    options = parse()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    judge = judging.Judge(ScriptedEngine(tokenizer=tokenizer))
    metric = make_metric(judge.encoder, options.prompt_tokens)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = write_rows(folder / "rows.jsonl", options.rows)

        def run(out: str, limit: int | None = None) -> running.RunResult:
            return running.run_file(
                [metric],
                data,
                model=options.model,
                out=folder / out,
                limit=limit,
                open_judge=lambda *_, **__: judge,
            )

        stages = Stages()
        with stages, Memory() as memory:
            start, cpu_start = time.perf_counter(), time.process_time()
            result = run("run")
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        start = time.perf_counter()
        run("run")
        resume_s = time.perf_counter() - start
        if options.profile:
            with cProfile.Profile() as profile:
                run("profile", limit=min(options.rows, 10_000))
            pstats.Stats(profile).sort_stats("tottime").print_stats(40)
        prompt_tokens = mean_prompt_tokens(folder / "run")

    rates = {"rows_per_s": options.rows / seconds, "rows_per_cpu_s": options.rows / cpu_seconds}
    shares = {**stages.seconds, "the rest": cpu_seconds - sum(stages.seconds.values())}
    print(
        f"{options.rows} rows on one core: {rates['rows_per_s']:.0f} rows/s by the clock, "
        f"{rates['rows_per_cpu_s']:.0f} per second of the processor's time"
    )
    for stage, spent in sorted(shares.items(), key=lambda item: -item[1]):
        print(
            f"  {stage:<22} {1e6 * spent / options.rows:7.1f} µs a row {spent / cpu_seconds:6.1%}"
        )
    print(f"the same command on the finished run: {resume_s:.1f} s")
    print(f"memory: {memory.start:.0f} MB at the start, at most {memory.growth:.0f} MB above it")
    document = {
        "model": options.model.name,
        "rows": options.rows,
        "ok": sum(tally.ok for tally in result.tallies),
        **rates,
        "stage_cpu_s": shares,
        "resume_s": resume_s,
        "prompt_tokens": prompt_tokens,
        "memory_start_mb": memory.start,
        "memory_growth_mb": memory.growth,
        "machine": describe(),
        "versions": versions(),
    }
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(document))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder with a tokenizer")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--prompt-tokens", type=int, default=700, help="about so many per prompt")
    parser.add_argument("--profile", action="store_true", help="also print a function profile")
    parser.add_argument("--json", type=Path, help="also write the JSON document to this file")
    return parser.parse_args()


def write_rows(path: Path, count: int) -> Path:
    """Write generated rows as JSON Lines, one at a time, and return the file."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in make_rows(count))
    return path


def mean_prompt_tokens(run: Path) -> float:
    """Return how many tokens a prompt of a finished run had on average."""
    with (run / "verdicts.jsonl").open(encoding="utf-8") as lines:
        counts = [json.loads(line)["prompt_tokens"] for line in lines]
    return float(sum(counts) / len(counts))


class Stages:
    """Processor time of each stage of a run, in seconds, while the block runs.

    The calls by which one stage hands over to the next are timed; the stages do not overlap.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._originals: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Stages:
        self._wrap(data_check, "check_table", "check the file")
        self._wrap(Task, "questions", "render")
        self._wrap(PromptFrame, "encode", "encode")
        self._wrap(ScriptedEngine, "choose", "engine (scripted)")
        self._wrap(judging, "join", "build verdicts")
        self._wrap(RunStore, "pending", "store: look up")
        self._wrap(RunStore, "save", "store: save")
        self._wrap(RunStore, "finish", "store: write the files")
        self._wrap(RunStore, "tallies", "store: tally")
        read = Table.__iter__
        self._replace(Table, "__iter__", lambda table: self._timed_steps("read", read(table)))
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, original in self._originals:
            setattr(owner, name, original)

    def _wrap(self, owner: Any, name: str, stage: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds[stage] += time.thread_time() - start

        self._replace(owner, name, timed)

    def _replace(self, owner: Any, name: str, new: Any) -> None:
        self._originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    def _timed_steps(self, stage: str, steps: Iterator[Any]) -> Iterator[Any]:
        while True:
            start = time.thread_time()
            step = next(steps, None)
            self.seconds[stage] += time.thread_time() - start
            if step is None:
                return
            yield step


class Memory:
    """Resident memory of this process, sampled while the block runs, in megabytes (10^6 bytes)."""

    def __enter__(self) -> Memory:
        self.start = self.peak = resident_mb()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def growth(self) -> float:
        """How far the memory rose above the start."""
        return self.peak - self.start

    def _sample(self) -> None:
        while not self._ended.wait(0.02):
            self.peak = max(self.peak, resident_mb())


def resident_mb() -> float:
    """Return the memory that this process holds now, as Linux tells it."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
