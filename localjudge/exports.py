"""The verdicts of a run as a table for other tools: as they are, or with one row per input row."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from os import PathLike
from pathlib import Path
from typing import Any

from localjudge.errors import ConfigError
from localjudge.records import VERDICT_FIELDS, Verdict
from localjudge.store import read_verdicts
from localjudge.tables import replacing, write_jsonl, write_parquet

Record = dict[str, Any]
_OWN_FILES = ("verdicts.jsonl", "verdicts.parquet", "run.json")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what a spreadsheet may take for a formula


def export_run(
    folder: str | PathLike[str], path: str | PathLike[str] | None = None, *, wide: bool = False
) -> Path:
    """Write the verdicts of a finished run to a file, and return its path. Rows are streamed.

    Without `wide`, there is one row for each verdict, with its fields. With it, there is one row
    for each input row: its `id`, and for each metric `<metric>_label` (the label, or the text of a
    metric that answers with text), `<metric>_score`, `<metric>_explanation` and `<metric>_status`.

    JSON Lines and Parquet hold the texts as they are. In CSV, a text that a spreadsheet could take
    for a formula gets a `'` in front; numbers stay numbers, and nested values become JSON.

    Args:
        folder: The run folder.
        path: A .jsonl, .csv or .parquet file, replaced if it is there; by default `verdicts.csv` or
            `wide.csv` in the run folder.
        wide: Whether to write one row for each input row.

    Raises:
        ConfigError: the ending is that of no known format, or the file is one of the run's own.
        RunError: the folder holds no finished run, or the file cannot be written.
    """
    folder = Path(folder)
    path = folder / ("wide.csv" if wide else "verdicts.csv") if path is None else Path(path)
    writers = _WIDE if wide else _LONG
    if path.suffix.lower() not in writers:
        raise ConfigError(
            f"the ending {path.suffix!r} is not that of a known format",
            path=path,
            field="out",
            hint=f"the formats that are written: {', '.join(writers)}",
        )
    if path.resolve() in [(folder / name).resolve() for name in _OWN_FILES]:
        raise ConfigError(
            "is one of the run's own files", path=path, field="out", hint="choose another name"
        )
    verdicts = read_verdicts(folder)
    first = list(islice(verdicts, 1))  # so that what is wrong with the run comes up before all else
    writers[path.suffix.lower()](chain(first, verdicts), path)
    return path


def _write_long_csv(verdicts: Iterable[Verdict], path: Path) -> None:
    _write_csv(VERDICT_FIELDS, (verdict.to_dict() for verdict in verdicts), path)


def _write_wide_csv(verdicts: Iterable[Verdict], path: Path) -> None:
    _write_csv(*_widened(verdicts), path)


def _write_wide_jsonl(verdicts: Iterable[Verdict], path: Path) -> None:
    _, records = _widened(verdicts)
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")


def _write_wide_parquet(verdicts: Iterable[Verdict], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, records = _widened(verdicts)
    kinds = {name: pa.float64() if name.endswith("_score") else pa.string() for name in columns}
    schema = pa.schema(list(kinds.items()))
    with (
        replacing(path) as partial,
        partial.open("wb") as file,
        pq.ParquetWriter(file, schema) as writer,
    ):
        while batch := list(islice(records, 10_000)):
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))


_LONG: dict[str, Callable[[Iterable[Verdict], Path], None]] = {
    ".jsonl": write_jsonl,
    ".csv": _write_long_csv,
    ".parquet": write_parquet,
}
_WIDE: dict[str, Callable[[Iterable[Verdict], Path], None]] = {
    ".jsonl": _write_wide_jsonl,
    ".csv": _write_wide_csv,
    ".parquet": _write_wide_parquet,
}


def _widened(verdicts: Iterable[Verdict]) -> tuple[Sequence[str], Iterator[Record]]:
    """Return the columns of the wide table, and its rows.

    The verdicts of one row stand together, and every row of a finished run has one of each metric.
    """
    rows = (list(group) for _, group in groupby(verdicts, key=lambda verdict: verdict.id))
    first = next(rows, [])
    return tuple(_wide(first)), map(_wide, chain([first] if first else [], rows))


def _wide(verdicts: Sequence[Verdict]) -> Record:
    record: Record = {"id": verdicts[0].id if verdicts else None}
    for verdict in verdicts:
        text = verdict.value if isinstance(verdict.value, str) else None
        record[f"{verdict.metric}_label"] = text
        record[f"{verdict.metric}_score"] = verdict.score
        record[f"{verdict.metric}_explanation"] = verdict.explanation
        record[f"{verdict.metric}_status"] = str(verdict.status)
    return record


def _write_csv(columns: Sequence[str], records: Iterable[Record], path: Path) -> None:
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(map(_cell, columns))
        for record in records:
            writer.writerow([_cell(record[name]) for name in columns])


def _cell(value: Any) -> Any:
    """Return a value as the text or number of a CSV cell."""
    if isinstance(value, bool | dict | list):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
