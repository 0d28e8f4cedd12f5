"""How far do the shipped metrics agree with people, with given models?

Every metric judges a sample of each file of human-labelled rows that `datasets.toml` gives it, in
five ways on the same model and rows:

    raw         `localjudge run`, as it is
    calibrated  its probabilities, calibrated on other rows of the file (cross-validation; rows of
                one group, such as a document, are never on both sides)
    fitted      a linear head on its last hidden state, fitted on other rows in the same way
    free_text   the model answers freely and the answer is parsed
    majority    every row gets the most frequent label, whose share is its probability

Each file is a run in a folder of its own below --out, so the same command goes on where an earlier
one was stopped. Figures have 95% bootstrap intervals over groups. The last line is one JSON
document.

    python benchmarks/agreement.py --data FOLDER --model FOLDER --out runs/agreement

Prompts are changed by what the half `dev` of the rows says (a hash of the id), and reported on the
half `final`, once:

    python benchmarks/agreement.py --data FOLDER --model FOLDER --out runs/dev --half dev \
        --prompts FOLDER_OF_CHANGED_METRICS
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from localjudge.offline import go_offline

go_offline()

import numpy as np  # noqa: E402
from labelled import DataSet, find, sample  # noqa: E402
from machine import describe, versions  # noqa: E402

from localjudge.answers import Labels, Open, Scale, Text  # noqa: E402
from localjudge.calibration import cross_calibrated  # noqa: E402
from localjudge.compared import Compared, compare  # noqa: E402
from localjudge.engines.base import Failure  # noqa: E402
from localjudge.errors import LocaljudgeError  # noqa: E402
from localjudge.head_fitting import fit_head  # noqa: E402
from localjudge.judge import Judge  # noqa: E402
from localjudge.outcomes import Refusal  # noqa: E402
from localjudge.outputs import replacing  # noqa: E402
from localjudge.records import Row  # noqa: E402
from localjudge.report import write_report  # noqa: E402
from localjudge.run import run_file  # noqa: E402
from localjudge.statistics.figures import Figure  # noqa: E402
from localjudge.statistics.judging import judge_figures  # noqa: E402

FREE_TOKENS = 48  # of a free answer; the JSON answers need about ten
WAYS = ("raw", "calibrated", "fitted", "free_text", "majority")
Figures = Mapping[str, Figure]


def main() -> None:
    """Judge, compare and report."""
    options = parse()
    found: dict[str, Any] = {}
    for model in options.model:
        for engine in options.engine:
            judges = Judges(model, engine)
            out = options.out / f"{Path(model).name}-{engine}"
            for data in find(options.data, options.prompts, options.only):
                compared = of_file(data, judges, out / data.name, options)
                key = f"{Path(model).name}-{engine}"
                found.setdefault(key, {})[data.name] = compared
                print(f"{key}: {data.name}", flush=True)
            judges.close()
    lines = [line for key, files in found.items() for line in table(key, files)]
    print("\n".join(lines))
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    document = next(iter(found.values())) if len(found) == 1 else found
    if options.json:
        text = json.dumps(document, indent=1, allow_nan=False)
        options.json.write_text(text + "\n", encoding="utf-8")
    settings = {name: getattr(options, name) for name in ("half", "rows", "seed")}
    print(
        json.dumps({**settings, "found": document, "machine": describe(), "versions": versions()})
    )


def parse() -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of labelled .jsonl files")
    parser.add_argument("--model", nargs="+", required=True, help="model folders, or names")
    parser.add_argument("--engine", nargs="+", default=["auto"], help="transformers, vllm, auto")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--prompts", type=Path, help="folder of metric files, for the shipped ones")
    parser.add_argument("--half", choices=("all", "dev", "final"), default="all")
    parser.add_argument("--rows", type=int, default=200, help="the most rows of a file")
    parser.add_argument("--seed", type=int, default=0, help="which rows are drawn")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these, without .jsonl")
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS, metavar="WAY")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    return parser.parse_args()


class KeptJudge(Judge):
    """A judge that stays open behind its run, for the next one."""

    def __exit__(self, *_: object) -> None:
        pass


class Judges:
    """Loads the model when a run first needs it: those that are finished need none."""

    def __init__(self, model: str, engine: str) -> None:
        self.model, self.engine = model, engine
        self._judge: Judge | None = None
        self._embeds = False

    def open(self, *arguments: Any, embed: bool = False, **settings: Any) -> Judge:
        """Do what `Judge.open` does, once; again where vLLM is to do what it was not opened for."""
        if self._judge is not None and embed != self._embeds and self._judge.engine.name == "vllm":
            self._judge.close()
            self._judge = None
        if self._judge is None:
            self._judge = KeptJudge.open(*arguments, embed=embed, **settings)
            self._embeds = embed
        return self._judge

    def close(self) -> None:
        """Free the model."""
        if self._judge is not None:
            self._judge.close()


def of_file(
    data: DataSet, judges: Judges, folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the figures of one file by way and name, or the reason why there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = sample(data.path, options.half, options.rows, options.seed)
    path, human = folder / "rows.jsonl", folder / "human.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    # A row without a text to be grouped by stands alone.
    groups = [str((data.group and row.get(data.group)) or f"row {row['id']}") for row in rows]
    labels = [
        {"id": row["id"], "label": row["label"], "group": group}
        for row, group in zip(rows, groups, strict=True)
    ]
    human.write_text("".join(json.dumps(row) + "\n" for row in labels), encoding="utf-8")
    labelled = folder / "labelled.jsonl"
    both = (row | {"group": group} for row, group in zip(rows, groups, strict=True))
    labelled.write_text("".join(json.dumps(row) + "\n" for row in both), encoding="utf-8")
    run_file(
        [data.metric],
        path,
        model=judges.model,
        out=folder / "run",
        engine=judges.engine,
        mapping=data.mapping,
        open_judge=judges.open,
    )
    if isinstance(data.metric.answers, Text):
        return {"rows": len(rows), "reason": "the metric answers with text"}
    [compared] = compare(folder / "run", human, cluster_column="group")
    write_report(
        folder / "run", folder / "report.html", human=human, data=path, cluster_column="group"
    )
    found: dict[str, Any] = {"rows": len(compared.human), "metric": data.metric.name}
    if "raw" in options.ways:
        found["raw"] = _plain(_figures(compared, compared.judge, compared.distributions))
    if "calibrated" in options.ways:
        try:
            probabilities, calibrated = cross_calibrated(compared, seed=options.seed)
            found["calibrated"] = _plain(_figures(compared, calibrated, probabilities))
        except LocaljudgeError as error:
            found["calibrated"] = {"reason": str(error).splitlines()[0]}
    if "fitted" in options.ways:
        try:
            fitted = fit_head(
                data.metric,
                labelled,
                model=judges.model,
                group_column="group",
                mapping=data.mapping,
                engine=judges.engine,
                seed=options.seed,
                open_judge=judges.open,
            )
            found["fitted"] = _plain(fitted.figures["fitted"])
            found["curve"] = {str(count): kappa for count, kappa in fitted.curve.items()}
        except LocaljudgeError as error:
            found["fitted"] = {"reason": str(error).splitlines()[0]}
    if "free_text" in options.ways:
        answers = free_text(data, rows, judges, folder / "free_text.jsonl")
        places = {answer: place for place, answer in enumerate(compared.labels)}
        free = [places.get(answers.get(verdict.id) or "", -1) for verdict in compared.verdicts]
        found["free_text"] = _plain(_figures(compared, np.array(free), None))
    if "majority" in options.ways:
        shares = np.bincount(compared.human, minlength=len(compared.labels)) / len(compared.human)
        most = np.full(len(compared.human), int(shares.argmax()))
        constant = np.tile(shares, (len(most), 1))
        found["majority"] = _plain(_figures(compared, most, constant))
    return found


def _figures(compared: Compared, judge: Any, distributions: Any) -> Figures:
    return judge_figures(
        compared.human,
        judge,
        compared.labels,
        values=compared.values,
        distributions=distributions,
        own_lists=compared.own_lists,
        clusters=compared.clusters,
    )


def _plain(figures: Figures) -> dict[str, Any]:
    return {
        name: {"value": figure.value, "low": figure.low, "high": figure.high}
        | ({} if figure.reason is None else {"reason": figure.reason})
        for name, figure in figures.items()
    }


def free_text(
    data: DataSet, rows: Sequence[dict[str, Any]], judges: Judges, path: Path
) -> dict[str, str | None]:
    """Return what the model answers freely to the same prompts, by id; None for no answer."""
    if not path.exists():
        judge = judges.open(judges.model, engine=judges.engine)
        task = judge.prepare(data.metric, data.mapping)
        with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
            for start in range(0, len(rows), judge.chunk_rows):
                chunk = [Row.of(row, 0) for row in rows[start : start + judge.chunk_rows]]
                asked = judge.ask(task, chunk)
                first = [None if isinstance(each, Refusal) else each[0] for each in asked.asked]
                made = [None if question is None else asked.made[question] for question in first]
                known = [prompt for prompt in made if prompt and not isinstance(prompt, Refusal)]
                drafts = iter(judge.engine.think([prompt.ids for prompt in known], FREE_TOKENS))
                for row, prompt in zip(chunk, made, strict=True):
                    draft = None
                    if prompt and not isinstance(prompt, Refusal):
                        draft = next(drafts)
                    text = None if draft is None or isinstance(draft, Failure) else draft.text
                    answer = None if text is None else parsed(text, answers_of(data, row))
                    line = {"id": row.id, "text": text, "answer": answer}
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["id"]: line["answer"] for line in lines}


def answers_of(data: DataSet, row: Row) -> list[str]:
    """Return what a row may be answered with, as text."""
    space = data.metric.answers
    if isinstance(space, Open):
        space = space.close(row.fields["choices"])
    assert isinstance(space, Labels | Scale)
    return [str(value) for value in space.values]


def parsed(text: str, answers: Sequence[str]) -> str | None:
    """Return the answer that a free text gives: as JSON, or else the only one that it names."""
    decoder = json.JSONDecoder()
    for place, letter in enumerate(text):
        if letter == "{":
            try:
                document, _ = decoder.raw_decode(text, place)
            except ValueError:
                continue
            if isinstance(document, dict) and str(document.get("output")) in answers:
                return str(document["output"])
    # The longest first, and each taken out, so that `refused` is not seen in `not_refused`.
    named = []
    for answer in sorted(answers, key=len, reverse=True):
        if answer in text:
            named.append(answer)
            text = text.replace(answer, " ")
    return named[0] if len(named) == 1 else None


def table(key: str, files: Mapping[str, Any]) -> list[str]:
    """Return the table in Markdown: kappa (quadratic for scales) of each way with its interval."""
    lines = [
        f"### {key}",
        "",
        "| file | rows | figure | " + " | ".join(WAYS) + " |",
        "| --- | --- | --- |" + " --- |" * len(WAYS),
    ]
    for name, found in files.items():
        if "reason" in found:
            lines.append(f"| {name} | {found['rows']} | {found['reason']} |" + " |" * len(WAYS))
            continue
        scale = any("kappa_quadratic" in found.get(way, {}) for way in WAYS)
        kappa = "kappa_quadratic" if scale else "kappa"
        for figure in (kappa, "accuracy_failures_wrong", "coverage", "log_loss"):
            cells = [_cell(found.get(way, {}), figure) for way in WAYS]
            lines.append(f"| {name} | {found['rows']} | {figure} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _cell(figures: Mapping[str, Any], name: str) -> str:
    if "reason" in figures or figures.get(name, {}).get("value") is None:
        return "-"
    figure = figures[name]
    if figure["low"] is None:
        return f"{figure['value']:.2f}"
    return f"{figure['value']:.2f} ({figure['low']:.2f} to {figure['high']:.2f})"


if __name__ == "__main__":
    main()
