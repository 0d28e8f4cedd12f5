"""Does a run that is killed at a random moment, and killed again, end like one that was not?

A run of generated rows with the scripted engine is killed (`kill -9`) at a random moment, most
times a second time while it goes on, and then started once more. After that its files must be byte
for byte those of a run that nobody disturbed. Each run is a fork of this process, so that a kill
costs no loading. The last line is one JSON document.

    python benchmarks/kills.py --model FOLDER --kills 50
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would not live on in a fork

import argparse
import itertools
import json
import random
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from zlib import crc32

from localjudge.offline import go_offline

go_offline()

from localjudge.engines.base import Failure  # noqa: E402
from localjudge.engines.scripted import ScriptedEngine, byte_tokenizer  # noqa: E402
from localjudge.judge import Judge  # noqa: E402
from localjudge.metrics import classifier  # noqa: E402
from localjudge.run import run_file  # noqa: E402

_FILES = ("verdicts.jsonl", "verdicts.parquet")
_TONE = classifier(
    "tone", {"good": "pleased", "bad": "not"}, inputs={"text": "output"}, user="Text:\n{text}"
)


_ENGINE = ScriptedEngine(lambda prompt, _: answer(prompt), tokenizer=byte_tokenizer())
_ENGINE.chunk_rows = 40


def answer(prompt: str) -> list[float] | Failure:
    """Answer by the prompt, slowly, so that most kills fall into the judging; some rows fail."""
    time.sleep(0.0002)
    seed = crc32(prompt.encode())
    return Failure("it always does") if seed % 50 == 7 else [0.4 + seed % 89 / 300, 0.2]


def main() -> None:
    """Kill runs and compare."""
    options = parse()
    chance = random.Random(options.seed)
    moments: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "rows.jsonl"
        with data.open("w", encoding="utf-8") as file:
            for number in range(options.rows):
                row = {"id": f"r{number}", "output": f"text {number} {'x' * (number % 61)}"}
                file.write(json.dumps(row) + "\n")
        start = time.monotonic()
        wait(begin(options.model, data, folder / "whole"))
        whole_s = time.monotonic() - start
        expected = [(folder / "whole" / file).read_bytes() for file in _FILES]
        kills, numbers = 0, itertools.count()
        while kills < options.kills:
            out = folder / f"run{next(numbers)}"
            for _ in range(min(options.kills - kills, chance.choice((1, 2, 2, 3)))):
                process = begin(options.model, data, out)
                time.sleep(chance.uniform(0, 1.1 * whole_s))
                os.kill(process, signal.SIGKILL)
                if os.waitpid(process, 0)[1] == signal.SIGKILL:  # it had not ended by itself
                    moments[state(out)] += 1
                    kills += 1
            wait(begin(options.model, data, out))
            for file, content in zip(_FILES, expected, strict=True):
                if (out / file).read_bytes() != content:
                    sys.exit(f"{out.name}/{file} is not that of a run that was not killed")
    document = {"rows": options.rows, "kills": kills, "killed_while": dict(moments)}
    print(json.dumps(document))


def begin(model: Path, data: Path, out: Path) -> int:
    """Start a run in a process of its own, and return its id."""
    with warnings.catch_warnings(action="ignore"):  # of forks beside threads; none is needed
        process = os.fork()
    if process == 0:
        code = 1
        try:
            run_file(
                [_TONE],
                data,
                model=model,
                out=out,
                engine="scripted",
                open_judge=lambda *_, **__: Judge(_ENGINE),
            )
            code = 0
        except BaseException as error:  # a fork must not go on as its parent
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    return process


def wait(process: int) -> None:
    """Wait until a run has ended by itself."""
    _, status = os.waitpid(process, 0)
    if status != 0:
        sys.exit(f"a run that was not killed ended with status {status}")


def state(out: Path) -> str:
    """Return what a killed run was doing, as it said itself."""
    try:
        return str(json.loads((out / "progress.json").read_text(encoding="utf-8"))["state"])
    except FileNotFoundError:
        return "checking the data"


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="any folder; it is not loaded")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    return parser.parse_args()


if __name__ == "__main__":
    main()
