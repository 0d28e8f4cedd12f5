"""How far do the shipped metrics agree with people, with a given model?

Every metric judges a sample of each file of human-labelled rows that `prompts.toml` gives it. Rows
fall into two halves by a hash of their id: prompts are changed by what the half `dev` says, and
figures are reported on the half `final`, once. Each file is a run in a folder of its own below
--out, so the same command goes on where an earlier one was stopped. The last line is one JSON
document.

    python benchmarks/prompts.py --data FOLDER --model FOLDER --out runs/final
    python benchmarks/prompts.py --data FOLDER --model FOLDER --out runs/dev --half dev \
        --prompts FOLDER_OF_CHANGED_METRICS

Columns: rows with a verdict; kappa (Cohen's, quadratic for scales); accuracy, next to that of
always giving the most frequent label (of guessing, where each row lists its own); and how well the
probabilities order the rows, with a 95% interval over resampled rows. That is the area under the
ROC curve, of each label against the others, on average (for rows with lists of their own: of the
right label against the wrong ones of its row; 0.5 is chance), or for scales Spearman's correlation
of the expected score (0 is chance).
"""

from __future__ import annotations

import argparse
import json
import random
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

from localjudge.offline import go_offline

go_offline()

from machine import describe, versions  # noqa: E402

from localjudge.answers import Open, Scale, Text  # noqa: E402
from localjudge.judge import Judge  # noqa: E402
from localjudge.library import shipped  # noqa: E402
from localjudge.metrics import Metric, load_metric  # noqa: E402
from localjudge.records import Verdict  # noqa: E402
from localjudge.run import run_file  # noqa: E402
from localjudge.runs import read_verdicts  # noqa: E402

RESAMPLES = 400
HEADER = f"{'file':34} {'n':>4} {'ok':>5} {'kappa':>6} {'acc':>5} {'base':>5}  rank (95%)"

Pair = tuple[dict[str, Any], Verdict]


def main() -> None:
    """Judge, compare and report."""
    options = parse()
    judges = Judges()
    print(HEADER)
    figures: dict[str, dict[str, Any]] = {}
    for file in files(options.data, options.prompts):
        if options.only and file.path.stem not in options.only:
            continue
        rows = sample(file.path, options.half, options.rows, options.seed)
        if not rows:
            continue
        figures[file.path.stem] = compare(file, judged(file, rows, judges, options))
        print(shown(file.path.stem, figures[file.path.stem]), flush=True)
    document = {
        "model": options.model,
        "half": options.half,
        "rows": options.rows,
        "seed": options.seed,
        "files": figures,
        "machine": describe(),
        "versions": versions(),
    }
    if options.json:
        options.json.write_text(json.dumps(document) + "\n", encoding="utf-8")
    print(json.dumps(document))


def parse() -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled .jsonl files")
    parser.add_argument("--model", required=True, help="model folder, or name of a model")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--engine", default="auto", help="transformers or vllm")
    parser.add_argument("--prompts", type=Path, help="folder of metric files, for the shipped ones")
    parser.add_argument("--half", choices=("dev", "final"), default="final")
    parser.add_argument("--rows", type=int, default=100, help="the most rows of a file")
    parser.add_argument("--seed", type=int, default=0, help="which rows are drawn")
    parser.add_argument("--only", nargs="*", metavar="FILE", help="only these, without .jsonl")
    parser.add_argument("--json", type=Path, help="also write the JSON document to this file")
    return parser.parse_args()


@dataclass(frozen=True)
class File:
    """A file of labelled rows, and how a metric reads it."""

    path: Path
    metric: Metric
    mapping: dict[str, str]
    rank: str


def files(data: Path, prompts: Path | None) -> list[File]:
    """Return the files of `data` that a metric judges, sorted by name."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    metrics = shipped()
    if prompts is not None:
        metrics |= {path.stem: path for path in prompts.glob("*.toml")}
    known = {name: {"metric": name} for name in metrics} | table
    found = []
    for path in sorted(data.glob("*.jsonl")):
        if path.stem in known:
            entry = known[path.stem]
            metric = load_metric(metrics[entry["metric"]])
            found.append(File(path, metric, entry.get("map", {}), entry.get("rank", "label")))
    return found


def sample(path: Path, half: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Draw at most `count` rows of one half of a file."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if half_of(str(row["id"])) == half]
    return random.Random(seed).sample(rows, min(count, len(rows)))


def half_of(row_id: str) -> str:
    """Return the half that a row belongs to."""
    return ("dev", "final")[sha256(row_id.encode()).digest()[0] % 2]


class KeptJudge(Judge):
    """A judge that stays open behind its run, for the next one."""

    def __exit__(self, *_: object) -> None:
        pass


class Judges:
    """Loads the model when a run first needs it: those that are finished need none."""

    def __init__(self) -> None:
        self._judge: Judge | None = None

    def open(self, *arguments: Any, **settings: Any) -> Judge:
        """Do what `Judge.open` does, once."""
        if self._judge is None:
            self._judge = KeptJudge.open(*arguments, **settings)
        return self._judge


def judged(
    file: File, rows: Sequence[dict[str, Any]], judges: Judges, options: argparse.Namespace
) -> list[Pair]:
    """Return the rows with their verdicts, from a run that goes on if it was begun before."""
    folder = options.out / file.path.stem
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    run_file(
        [file.metric],
        data,
        model=options.model,
        out=folder / "run",
        engine=options.engine,
        mapping=file.mapping,
        open_judge=judges.open,
    )
    verdicts = {verdict.id: verdict for verdict in read_verdicts(folder / "run")}
    return [(row, verdicts[str(row["id"])]) for row in rows]


def compare(file: File, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the figures of one file; None where there is none to be had."""
    ok = [(row, verdict) for row, verdict in pairs if verdict.value is not None]
    figures: dict[str, Any] = {
        "metric": file.metric.name,
        "digest": file.metric.digest,
        "n": len(pairs),
        "ok": len(ok) / len(pairs),
    }
    if isinstance(file.metric.answers, Text) or not ok:
        return figures
    measure = ranking(file)
    return figures | {
        "kappa": kappa(ok, "quadratic" if isinstance(file.metric.answers, Scale) else None),
        "accuracy": fmean(verdict.value == row["label"] for row, verdict in ok),
        "base": base(ok),
        "measure": measure.__name__,
        "rank": measure(ok),
        "interval": interval(ok, measure),
    }


def kappa(pairs: Sequence[Pair], weights: str | None) -> float | None:
    """Return Cohen's kappa; None if all labels are the same."""
    from sklearn.metrics import cohen_kappa_score

    given, found = [row["label"] for row, _ in pairs], [verdict.value for _, verdict in pairs]
    if len({*given, *found}) < 2:
        return None
    return float(cohen_kappa_score(given, found, weights=weights))


def base(pairs: Sequence[Pair]) -> float:
    """Return the accuracy of always giving the most frequent label, or of guessing from lists."""
    if "choices" in pairs[0][0]:
        return fmean(1 / len(verdict.probabilities or ()) for _, verdict in pairs)
    return Counter(row["label"] for row, _ in pairs).most_common(1)[0][1] / len(pairs)


def ranking(file: File) -> Callable[[Sequence[Pair]], float | None]:
    """Return the measure of how well the probabilities order the rows."""
    if isinstance(file.metric.answers, Scale):

        def spearman(pairs: Sequence[Pair]) -> float | None:
            from scipy.stats import spearmanr

            given = [row[file.rank] for row, _ in pairs]
            found = [verdict.expected_score for _, verdict in pairs]
            if len(set(given)) < 2 or len(set(found)) < 2:
                return None
            return float(spearmanr(given, found).statistic)

        return spearman
    return auroc_of_lists if isinstance(file.metric.answers, Open) else auroc


def auroc(pairs: Sequence[Pair]) -> float | None:
    """Return the area under the ROC curve of each label against the others, on average."""
    from sklearn.metrics import roc_auc_score

    areas = []
    for label in pairs[0][1].probabilities or ():
        given = [row["label"] == label for row, _ in pairs]
        if 0 < sum(given) < len(given):
            found = [(verdict.probabilities or {})[label] for _, verdict in pairs]
            areas.append(float(roc_auc_score(given, found)))
    return fmean(areas) if areas else None


def auroc_of_lists(pairs: Sequence[Pair]) -> float | None:
    """Return the share of a row's wrong labels that are less probable than its right one."""
    shares = []
    for row, verdict in pairs:
        others = dict(verdict.probabilities or {})
        right = others.pop(row["label"])
        shares.append(fmean((right > other) + (right == other) / 2 for other in others.values()))
    return fmean(shares)


def interval(
    pairs: Sequence[Pair], measure: Callable[[Sequence[Pair]], float | None]
) -> list[float] | None:
    """Return the middle 95% of the measure over rows that are drawn again with replacement."""
    draw = random.Random(0)
    drawn = [measure(draw.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES)]
    known = sorted(value for value in drawn if value is not None)
    if not known:
        return None
    return [known[round(share * (len(known) - 1))] for share in (0.025, 0.975)]


def shown(name: str, figures: dict[str, Any]) -> str:
    """Return one line of the table."""
    line = f"{name:34} {figures['n']:4} {figures['ok']:5.0%}"
    if "kappa" not in figures:
        return line
    numbers = [figures[key] for key in ("kappa", "accuracy", "base", "rank")]
    kappa, accuracy, base, rank = ("-" if n is None else f"{n:.2f}" for n in numbers)
    low, high = figures["interval"] or (float("nan"), float("nan"))
    return f"{line} {kappa:>6} {accuracy:>5} {base:>5}  {rank} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
