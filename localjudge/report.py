"""A report on a run: what the judge gets wrong, and whether it may be used. One HTML file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from localjudge.agreement import Agreement, agree
from localjudge.disagreements import Beside, beside_people, disagreements
from localjudge.errors import ConfigError, DataError
from localjudge.exports import refuse_own
from localjudge.human_labels import read_human
from localjudge.judged import read_judged
from localjudge.metric_report import SHOWN, MetricReport, People, Shown
from localjudge.outputs import replacing
from localjudge.page import render
from localjudge.paths import lookup
from localjudge.runs import Run, judged_table, open_run
from localjudge.tables import checked_rows
from localjudge.templates import as_text

_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Report:
    """All that the file says.

    Attributes:
        name: Name of the run folder.
        model: Name of the model's folder.
        settings: The settings of the run, dotted name and value; folders are left out of paths.
        fingerprints: Those of metrics, data, model and chat template.
        human: Name of the file of human labels, if there is one.
        data: Name of the data, if the rows' texts are shown.
        metrics: The metrics, in the order of the run.
    """

    name: str
    model: str | None
    settings: tuple[tuple[str, str], ...]
    fingerprints: tuple[tuple[str, str], ...]
    human: str | None
    data: str | None
    metrics: tuple[MetricReport, ...]

    @property
    def rows(self) -> int:
        """How many rows were judged."""
        return max((metric.rows for metric in self.metrics), default=0)


def write_report(
    folder: str | PathLike[str],
    path: str | PathLike[str] | None = None,
    *,
    human: str | PathLike[str] | None = None,
    data: str | PathLike[str] | None = None,
    label_column: str | Mapping[str, str] = "label",
    id_column: str | None = None,
    rater_column: str | None = None,
    cluster_column: str | None = None,
    map_labels: Mapping[str, str] | None = None,
    min_matched: float = 0.5,
    resamples: int = 2000,
    seed: int = 0,
) -> Path:
    """Write what a finished run is worth as one HTML file, and return its path.

    The file needs nothing else: no network, no script. The same run gives the same file.

    Args:
        folder: The run folder.
        path: The file, replaced if it is there; by default `report.html` in the run folder.
        human: A file of human labels; this and the options from `label_column` on are those of
            `agree`.
        data: The data that the run judged, for the texts of the rows, which a run does not keep.
        label_column, id_column, rater_column, cluster_column: See `agree`.
        map_labels, min_matched, resamples, seed: See `agree`.

    Raises:
        ConfigError: the file is one of the run's own, or one that is read; or as `agree`.
        DataError: the data are not those of the run; or as `agree`.
        RunError: the folder holds no finished run, or the file cannot be written.
    """
    run = open_run(folder)
    path = Path(path) if path is not None else run.folder / "report.html"
    refuse_own(run.folder, path)
    for name, other in (("human", human), ("data", data)):
        if other is not None and Path(other).resolve() == path.resolve():
            raise ConfigError(f"is the file of --{name}", path=path, field="out")
    judged = read_judged(folder)
    compared: dict[str, tuple[Agreement, list[Beside]]] = {}
    if human is not None:
        columns: dict[str, Any] = {
            "id_column": id_column,
            "rater_column": rater_column,
            "cluster_column": cluster_column,
        }
        agreements = agree(
            folder,
            human,
            label_column=label_column,
            **columns,
            map_labels=map_labels,
            min_matched=min_matched,
            resamples=resamples,
            seed=seed,
        )
        for each in agreements:
            column = label_column if isinstance(label_column, str) else label_column[each.metric]
            labels = read_human(human, label_column=column, **columns)
            compared[each.metric] = each, beside_people(judged[each.metric], labels, map_labels)
    differing = {metric: disagreements(rows) for metric, (_, rows) in compared.items()}
    shown = {row.verdict.id for rows in differing.values() for row in rows[:SHOWN]}
    fields = {} if data is None else _fields(run, data, shown)
    metrics = []
    for metric, verdicts in judged.items():
        people = None
        if metric in compared:
            of_metric = [
                Shown(row, _texts(run, metric, fields.get(row.verdict.id)))
                for row in differing[metric][:SHOWN]
            ]
            people = People(*compared[metric], len(differing[metric]), of_metric)
        metrics.append(MetricReport.of(verdicts, people))
    settings, fingerprints = _settings(run.settings)
    report = Report(
        run.folder.resolve().name,
        _name(_info(run.settings).get("model")),
        settings,
        fingerprints,
        _name(human),
        _name(data),
        tuple(metrics),
    )
    with replacing(path) as partial:
        partial.write_text(render(report), encoding="utf-8", newline="\n")
    return path


def _fields(
    run: Run, data: str | PathLike[str], shown: Iterable[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the fields of some rows of the data, by id."""
    table, check = judged_table(run, data)
    return {row.id: row.fields for row in checked_rows(table, check) if row.id in shown}


def _texts(run: Run, metric: str, fields: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what a metric read of a row, by input; all columns if `run.json` does not say it."""
    if fields is None:
        return {}
    judged = run.settings.get("data")
    columns = judged.get("columns") if isinstance(judged, dict) else None
    of_metric = columns.get(metric) if isinstance(columns, dict) else None
    read = of_metric if isinstance(of_metric, dict) else {name: name for name in fields}
    texts = {}
    for name, column in read.items():
        try:
            text = as_text(lookup(fields, str(column)))
        except DataError as error:
            text = f"({error.problem})"
        if text is not None:
            texts[name] = text
    return texts


def _info(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    info = settings.get("info")
    return info if isinstance(info, dict) else {}


def _name(path: Any) -> str | None:
    """Return the last part of a path: a report is passed on, and folders are private."""
    return None if path is None else Path(str(path)).name


def _settings(
    settings: Mapping[str, Any],
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Return the plain settings, and those that are fingerprints, each by its dotted name."""
    plain, digests = [], []
    for name, value in _flat(settings):
        if isinstance(value, str) and _DIGEST.fullmatch(value):
            digests.append((name, value))
        elif value not in (None, {}, []):
            text = _name(value) if name in ("info.data", "info.model") else value
            plain.append((name, text if isinstance(text, str) else json.dumps(text)))
    return tuple(plain), tuple(digests)


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value
