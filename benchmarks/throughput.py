"""What does a verdict cost, next to other ways to get one and to the limit of the engine?

Every way judges the same generated rows with the same model. Each loaded model lives in a process
of its own and stays there; the ways take turns, in every round in the reverse order of the one
before, so that a machine that slows down slows them all. What is reported are medians over the
rounds. The last line is one JSON document; `benchmarks/results/README.md` explains it.

    python benchmarks/throughput.py --model FOLDER
    python benchmarks/throughput.py --model FOLDER --toy --rows 3000
    python benchmarks/throughput.py --show benchmarks/results/*.json
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from figures import Cache, Measurement, print_table, summarise
from machine import describe, versions
from roofline import COUNTED, ModelShape, bf16_peak
from ways import HOSTS, Host, installed_ways
from workload import Workload, make_toy, make_workload

from localjudge.offline import go_offline

WARM_UP = 32  # rows; ways without a cache get half of them
PRIMER = 4  # rows that fill the prefix cache before a warm measurement


def main() -> None:
    """Measure, or show what was measured."""
    options = parse()
    if options.show:
        for file in options.show:
            print_table(json.loads(file.read_text(encoding="utf-8")))
        return
    go_offline()
    with tempfile.TemporaryDirectory(prefix="throughput-") as name:
        folder = Path(name)
        model = make_toy(folder / "toy", options.model) if options.toy else options.model
        work = make_workload(
            model,
            folder,
            rows=options.rows,
            warm_up=min(options.rows, WARM_UP),
            prompt_tokens=options.prompt_tokens,
        )
        machine, peak = describe(), bf16_peak()
        measurements = measure(work, folder, options)
        figures = summarise(measurements, work, ModelShape.read(model), peak)
    document = {
        "model": f"toy with the tokenizer of {options.model.name}"
        if options.toy
        else options.model.name,
        "rows": options.rows,
        **figures,
        "roofline_counts": COUNTED,
        "settings": {"prompt_tokens": options.prompt_tokens, "vllm": options.vllm_arg},
        "machine": machine,
        "versions": versions(),
    }
    print_table(document)
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(document))


def parse() -> argparse.Namespace:
    """Read the command line."""
    ways = installed_ways()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, help="model folder")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--slow-rows", type=int, default=64, help="rows for ways without a cache")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=700, help="about so many per prompt")
    parser.add_argument("--ways", nargs="+", default=ways, choices=ways, metavar="WAY")
    parser.add_argument("--toy", action="store_true", help="two random layers, so the host shows")
    parser.add_argument(
        "--vllm-arg",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="for both vLLM engines; on a GPU give gpu_memory_utilization=0.4 where both run",
    )
    parser.add_argument("--json", type=Path, help="also write the JSON document to this file")
    parser.add_argument("--show", type=Path, nargs="+", help="print the tables of such files only")
    options = parser.parse_args()
    if not options.show and not options.model:
        parser.error("--model is needed")
    if any("=" not in text for text in options.vllm_arg):
        parser.error("--vllm-arg takes KEY=VALUE")
    if min(options.rows, options.slow_rows, options.repeats) < 1:
        parser.error("rows and repeats must be positive")
    return options


def measure(work: Workload, folder: Path, options: argparse.Namespace) -> list[Measurement]:
    """Load the models, warm every way up, and let them take turns `options.repeats` times."""
    vllm_args = dict(text.split("=", 1) for text in options.vllm_arg)
    turns: list[tuple[Worker, str, Cache, int]] = []
    done = []
    with ExitStack() as stack:
        for host in HOSTS:
            ways = [way for way in host.ways if way in options.ways]
            if not ways:
                continue
            say(f"loading {host.__name__}")
            worker = stack.enter_context(Worker.start(host, work, folder, vllm_args))
            rows = options.rows if host.caches else min(options.rows, options.slow_rows)
            caches: tuple[Cache, ...] = ("cold", "warm") if host.caches else ("none",)
            warm_up = min(rows, WARM_UP if host.caches else WARM_UP // 2)
            for way in ways:
                worker.ask(way, caches[0], warm_up, warm_up=True)
                turns += [(worker, way, cache, rows) for cache in caches]
        for number in range(1, options.repeats + 1):
            for worker, way, cache, rows in turns if number % 2 else turns[::-1]:
                done.append(worker.ask(way, cache, rows))
                rate = rows / done[-1].seconds
                say(f"round {number}: {way}, cache {cache}: {rate:.1f} rows/s")
    return done


class Worker:
    """A host in a process of its own."""

    def __init__(self, connection: Connection, log: Path) -> None:
        self._connection = connection
        self._log = log

    @classmethod
    @contextmanager
    def start(
        cls, host: type[Host], work: Workload, folder: Path, vllm_args: dict[str, str]
    ) -> Iterator[Worker]:
        """Load a model; end the process when the block ends."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        log = folder / f"{host.__name__}.log"
        process = context.Process(target=serve, args=(theirs, host, work, folder, vllm_args, log))
        process.start()
        theirs.close()
        try:
            worker = cls(ours, log)
            worker._receive()
            yield worker
        finally:
            ours.close()
            process.join(timeout=20)
            process.kill()

    def ask(self, way: str, cache: Cache, rows: int, *, warm_up: bool = False) -> Measurement:
        """Take a way once, over so many rows."""
        self._connection.send((way, cache, rows, warm_up))
        done: Measurement = self._receive()
        return done

    def _receive(self) -> Any:
        try:
            answer = self._connection.recv()
        except EOFError:
            answer = "the process died"
        if isinstance(answer, str):
            lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            sys.exit("\n".join([*lines[-40:], answer]))
        return answer


def serve(
    connection: Connection,
    host_type: type[Host],
    work: Workload,
    folder: Path,
    vllm_args: dict[str, str],
    log: Path,
) -> None:
    """Load a model and measure whatever is asked, until the other side is gone."""
    with log.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    go_offline()
    try:
        host = host_type(work, vllm_args)
        connection.send(None)
        while True:
            connection.send(_timed(host, work, folder, *connection.recv()))
    except (EOFError, BrokenPipeError):
        return
    except Exception:  # whatever it is, the other process reports it
        connection.send(traceback.format_exc())


def _timed(
    host: Host, work: Workload, folder: Path, way: str, cache: Cache, rows: int, warm_up: bool
) -> Measurement:
    out = Path(tempfile.mkdtemp(dir=folder))
    host.forget()
    if cache == "warm":
        host.run(way, work.warm_up, min(PRIMER, len(work.warm_up.ids)), out / "primer")
    load = work.warm_up if warm_up else work.measured
    # In a run of its own the model is loaded late; here the collector would walk through it.
    gc.collect()
    gc.freeze()
    start = time.perf_counter()
    result = host.run(way, load, rows, out / "run")
    seconds = time.perf_counter() - start
    return Measurement(way, cache, rows, seconds, host.look(way, result))


def say(line: str) -> None:
    """Print a line of progress."""
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
