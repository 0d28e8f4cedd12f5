"""Runs calibrated: maps fitted from a run and human labels, and applied to the verdicts of runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from localjudge.calibration import Calibrated, calibrate
from localjudge.calibration_file import (
    COLUMNS,
    FORMAT,
    Calibration,
    FigureShape,
    MetricCalibration,
    digest_of,
    judged_by,
)
from localjudge.compared import compare
from localjudge.errors import DataError, RunError
from localjudge.fitting import Softmax
from localjudge.outputs import made, replacing, verdict_table, write_lines
from localjudge.records import Verdict
from localjudge.runs import open_run, read_verdicts

_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Calibrating:
    """What came of calibrating a run.

    Attributes:
        found: The maps by metric, whether worth it or not.
        refused: Why there is no map, by metric.
        calibration: Those that are worth it; None if none is.
    """

    found: Mapping[str, Calibrated]
    refused: Mapping[str, str]
    calibration: Calibration | None


def calibrate_run(
    folder: str | PathLike[str],
    human: str | PathLike[str],
    *,
    seed: int = 0,
    **columns: Any,
) -> Calibrating:
    """Fit maps from the judge's probabilities to those of human labels, metric by metric.

    Args:
        folder: The run folder.
        human: The file of human labels.
        seed: Where the random numbers begin: the same seed gives the same folds.
        columns: The options of `compare`.

    Raises:
        ConfigError, DataError, RunError: see `compare`.
    """
    run = open_run(folder)
    found, refused = {}, {}
    fitted: dict[str, MetricCalibration] = {}
    for compared in compare(folder, human, **columns):
        name = compared.metric
        try:
            one = found[name] = calibrate(compared, seed=seed)
        except DataError as error:
            refused[name] = error.problem + (f"; {error.hint}" if error.hint else "")
            continue
        if not one.worth_it:
            refused[name] = "beyond chance, the judge says no more than the labels' shares alone"
            continue
        fitted[name] = MetricCalibration(
            digest=dict(run.settings["metrics"])[name],
            labels=list(compared.labels),
            scale=compared.scale,
            kind=one.kind.name,
            penalty=one.kind.penalty,
            weights=one.fit.weights.tolist(),
            offsets=(one.fit.bias if isinstance(one.fit, Softmax) else one.fit.thresholds).tolist(),
            counts=dict(one.counts),
            raw={key: FigureShape(**figure.to_dict()) for key, figure in one.raw.items()},
            calibrated={
                key: FigureShape(**figure.to_dict()) for key, figure in one.calibrated.items()
            },
            gain=FigureShape(**one.gain.to_dict()),
        )
    whole = None
    if fitted:
        by, labels = judged_by(run), digest_of(human)
        whole = Calibration(format=FORMAT, judged_by=by, human=labels, metrics=fitted)
    return Calibrating(found, refused, whole)


def apply_calibration(
    folder: str | PathLike[str],
    calibration: Calibration | str | PathLike[str],
    out: str | PathLike[str] | None = None,
) -> tuple[Path, int, int]:
    """Write the verdicts of a finished run with calibrated ones beside them.

    The files are `calibrated.jsonl` and `calibrated.parquet`; their columns are those of the
    verdicts and `COLUMNS`. The calibrated value is the
    most probable answer.

    Args:
        folder: The run folder.
        calibration: The calibration, or its file.
        out: The folder for the files; by default the run's.

    Returns:
        The Parquet file, the number of calibrated verdicts, and how many answers changed.

    Raises:
        DataError: the calibration cannot be read, or is of another judge.
        RunError: the folder holds no finished run, or files cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not isinstance(calibration, Calibration):
        calibration = Calibration.load(calibration)
    run = open_run(folder)
    calibration.check(run)
    target = made(folder if out is None else out)
    answer = pa.struct([("answer", pa.string()), ("probability", pa.float64())])
    types = (pa.string(), pa.list_(answer), pa.float64(), pa.float64())
    total = changed = 0

    def batches() -> Iterator[tuple[list[Verdict], list[dict[str, Any]]]]:
        verdicts = read_verdicts(folder)
        while batch := list(islice(verdicts, _BATCH)):
            yield batch, _beside(calibration, batch)

    def lines() -> Iterator[str]:
        nonlocal total, changed
        for verdicts, beside in batches():
            for verdict, more in zip(verdicts, beside, strict=True):
                total += more["calibrated_value"] is not None
                changed += more["calibrated_value"] not in (None, verdict.value)
                both = verdict.to_dict() | more
                yield json.dumps(both, ensure_ascii=False, allow_nan=False)

    write_lines(lines(), target / "calibrated.jsonl")
    path = target / "calibrated.parquet"
    with replacing(path) as partial:
        writer = None
        for verdicts, beside in batches():
            table = verdict_table(verdicts)
            for name, kind in zip(COLUMNS, types, strict=True):
                table = table.append_column(
                    name, pa.array([_as_column(more[name]) for more in beside], kind)
                )
            writer = writer or pq.ParquetWriter(partial, table.schema)
            writer.write_table(table)
        if writer is None:
            raise RunError("the run has no verdicts", path=folder)
        writer.close()
    return path, total, changed


def _beside(calibration: Calibration, verdicts: list[Verdict]) -> list[dict[str, Any]]:
    """Return the calibrated columns of verdicts of any metrics, in their order."""
    places: dict[str, list[int]] = {}
    for place, verdict in enumerate(verdicts):
        places.setdefault(verdict.metric, []).append(place)
    beside: dict[int, dict[str, Any]] = {}
    for name, of_metric in places.items():
        rows = [verdicts[place] for place in of_metric]
        known = calibration.metrics.get(name)
        applied = known.apply(rows) if known else [dict.fromkeys(COLUMNS) for _ in rows]
        beside |= zip(of_metric, applied, strict=True)
    return [beside[place] for place in range(len(verdicts))]


def _as_column(value: Any) -> Any:
    if isinstance(value, dict):
        return [{"answer": name, "probability": chance} for name, chance in value.items()]
    return str(value) if isinstance(value, int) else value
