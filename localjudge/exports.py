"""The verdicts of a run as a table for other tools: as they are, by input row, beside the data."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from os import PathLike
from pathlib import Path
from typing import Any

from localjudge.errors import ConfigError, RunError
from localjudge.outputs import replacing, write_jsonl, write_parquet
from localjudge.readers.arrow import carried
from localjudge.records import VERDICT_FIELDS, Row, Verdict
from localjudge.runs import Run, judged_table, open_run
from localjudge.tables import Table, checked_rows

Record = dict[str, Any]
Columns = Mapping[str, str]  # each column's name and type: one of _ARROW
_OWN_FILES = (
    "verdicts.jsonl",
    "verdicts.parquet",
    "verdicts.db",
    "run.json",
    "progress.json",
    "lock",
)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # what a spreadsheet may take for a formula
_ARROW = {"text": "string", "float": "double", "int": "int64", "bool": "bool", "json": "string"}
_EXACT = 2**53  # up to there, every integer is a float too


def export_run(
    folder: str | PathLike[str],
    path: str | PathLike[str] | None = None,
    *,
    wide: bool = False,
    format: str | None = None,
    on_note: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the verdicts of a run to a file, and return its path. Rows are streamed.

    Without `wide`, there is one row for each verdict, with its fields. With it, there is one row
    for each input row: its `id`, and for each metric `<metric>_label` (the label, or the text of a
    metric that answers with text), `<metric>_score`, `<metric>_explanation` and `<metric>_status`.

    JSON Lines and Parquet hold the texts as they are. In CSV, a text that a spreadsheet could take
    for a formula gets a `'` in front; numbers stay numbers, and nested values become JSON.

    Args:
        folder: The run folder.
        path: The file, replaced if it is there; by default `verdicts` or `wide`, with the ending
            of the format, in the run folder.
        wide: Whether to write one row for each input row.
        format: `csv`, `jsonl` or `parquet`; by default that of the ending of `path`, else `csv`.
        on_note: Called with one line if the run is unfinished: how many verdicts there are.

    Raises:
        ConfigError: the format is unknown or another than that of the ending, or the file is one
            of the run's own.
        RunError: the folder holds no run, or the file cannot be written.
    """
    path, format = _target(Path(folder), path, "wide" if wide else "verdicts", format)
    run = open_run(folder)
    verdicts = _begun(_counted(run, on_note))
    if wide:
        columns, records = _widened(verdicts, run.metrics)
        _WRITERS[format](columns, records, path)
    elif format == "csv":
        columns = dict.fromkeys(VERDICT_FIELDS, "text")
        _write_csv(columns, (verdict.to_dict() for verdict in verdicts), path)
    else:
        {"jsonl": write_jsonl, "parquet": write_parquet}[format](verdicts, path)
    return path


def join_run(
    folder: str | PathLike[str],
    data: str | PathLike[str],
    path: str | PathLike[str] | None = None,
    *,
    format: str | None = None,
    on_note: Callable[[str], None] = lambda _: None,
) -> tuple[Path, dict[str, str]]:
    """Write the wide table of a run beside the columns of its data; see `export_run`.

    The data are read as the run read them. In Parquet, a column of texts, of integers, of numbers
    or of truth values keeps its type; any other one holds JSON text. A value that Python cannot
    hold, such as a date beyond the year 9999, is carried over as the text that Arrow has for it.

    Args:
        folder: The run folder.
        data: The data that the run judged.
        path: The file; by default `joined`, with the ending of the format, in the run folder.
        format: As for `export_run`.
        on_note: As for `export_run`.

    Returns:
        The file, and the columns of the wide table that have another name there, for the data have
        a column of that name: each with its new name, which ends with `_verdict`.

    Raises:
        ConfigError, RunError: as `export_run`.
        DataError: the data cannot be read, or are not those of the run.
    """
    path, format = _target(Path(folder), path, "joined", format)
    run = open_run(folder)
    wide, verdicts = _widened(_begun(_counted(run, on_note)), run.metrics)
    table, check = judged_table(run, data)
    if table.source.path is not None and table.source.path.resolve() == path.resolve():
        raise ConfigError(
            "is the data themselves", path=path, field="out", hint="choose another name"
        )
    own = _types(table)
    names = {name: _free(name, own) for name in wide}
    if table.id_column is not None:
        del names["id"]  # the data have it, under their own name
    added = {now: wide[name] for name, now in names.items()}
    columns = {now: "text" for name, now in names.items() if name == "id"} | own | added
    records = _joined(checked_rows(table, check), verdicts, names, finished=run.finished)
    _WRITERS[format](columns, records, path)
    return path, {name: now for name, now in names.items() if now != name}


def _counted(run: Run, on_note: Callable[[str], None]) -> Iterator[Verdict]:
    """Yield the verdicts, and say at the end how many there are if the run is unfinished."""
    number = 0
    for verdict in run.verdicts():
        number += 1
        yield verdict
    if not run.finished:
        of = "" if run.expected is None else f" of {run.expected}"
        on_note(f"the run is unfinished: {number}{of} verdicts are there")


def _target(
    folder: Path, path: str | PathLike[str] | None, stem: str, format: str | None
) -> tuple[Path, str]:
    """Return the file to write, and its format."""
    if path is None:
        path = folder / f"{stem}.{format or 'csv'}"
    path = Path(path)
    ending = path.suffix.lower().removeprefix(".")
    chosen = format or ending
    if chosen not in _WRITERS:
        raise ConfigError(
            f"the ending {path.suffix!r} is not that of a known format",
            path=path,
            field="out",
            hint=f"the formats that are written: .{', .'.join(_WRITERS)}",
        )
    if ending in _WRITERS and ending != chosen:
        raise ConfigError(
            f"the ending is not that of the format {chosen}",
            path=path,
            field="format",
            hint="leave out --format, or choose another name",
        )
    refuse_own(folder, path)
    return path, chosen


def refuse_own(folder: Path, path: Path) -> None:
    """Make sure that what is written to `path` replaces none of the files of the run in `folder`.

    Raises:
        ConfigError: it would.
    """
    if path.resolve() in [(folder / name).resolve() for name in _OWN_FILES]:
        raise ConfigError(
            "is one of the run's own files", path=path, field="out", hint="choose another name"
        )


def _begun(verdicts: Iterator[Verdict]) -> Iterator[Verdict]:
    first = list(islice(verdicts, 1))
    return chain(first, verdicts)


def _write_csv(columns: Columns, records: Iterable[Record], path: Path) -> None:
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(map(_cell, columns))
        for record in records:
            writer.writerow([_cell(record.get(name)) for name in columns])


def _cell(value: Any) -> Any:
    """Return a value as the text or number of a CSV cell."""
    if isinstance(value, bool | dict | list):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def _write_jsonl(columns: Columns, records: Iterable[Record], path: Path) -> None:
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for record in records:
            ordered = {name: record[name] for name in columns if name in record}
            file.write(json.dumps(ordered, ensure_ascii=False, allow_nan=False) + "\n")


def _write_parquet(columns: Columns, records: Iterable[Record], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.type_for_alias(_ARROW[kind])) for name, kind in columns.items()])
    nested = [name for name, kind in columns.items() if kind == "json"]
    remaining = iter(records)
    with (
        replacing(path) as partial,
        partial.open("wb") as file,
        pq.ParquetWriter(file, schema) as writer,
    ):
        while batch := list(islice(remaining, 10_000)):
            for record in batch:
                record.update(
                    (name, json.dumps(record[name], ensure_ascii=False))
                    for name in nested
                    if record.get(name) is not None
                )
            writer.write_batch(pa.RecordBatch.from_pylist(batch, schema))


_WRITERS: dict[str, Callable[[Columns, Iterable[Record], Path], None]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "parquet": _write_parquet,
}


def _widened(
    verdicts: Iterable[Verdict], metrics: Sequence[str]
) -> tuple[Columns, Iterator[Record]]:
    """Return the columns of the wide table, and its rows: the verdicts of a row stand together."""
    columns = {"id": "text"}
    for metric in metrics:
        parts = [f"{metric}_{part}" for part in ("label", "score", "explanation", "status")]
        columns |= dict.fromkeys(parts, "text") | {f"{metric}_score": "float"}
    rows = groupby(verdicts, key=lambda verdict: verdict.id)
    return columns, (_wide(row_id, group, columns) for row_id, group in rows)


def _wide(row_id: str, verdicts: Iterable[Verdict], columns: Columns) -> Record:
    record: Record = dict.fromkeys(columns) | {"id": row_id}
    for verdict in verdicts:
        text = verdict.value if isinstance(verdict.value, str) else None
        record[f"{verdict.metric}_label"] = text
        record[f"{verdict.metric}_score"] = verdict.score
        record[f"{verdict.metric}_explanation"] = verdict.explanation
        record[f"{verdict.metric}_status"] = str(verdict.status)
    return record


def _joined(
    rows: Iterable[Row],
    verdicts: Iterator[Record],
    names: Mapping[str, str],
    *,
    finished: bool,
) -> Iterator[Record]:
    """Yield the rows with their verdicts; JSON Lines keep to the columns that a row has.

    In a run that is unfinished, rows may have none.
    """
    record = next(verdicts, None)
    for row in rows:
        judged: Record = {"id": row.id}
        if record is not None and record["id"] == row.id:
            judged, record = record, next(verdicts, None)
        elif finished:
            break
        fields = {name: carried(value) for name, value in row.fields.items()}
        yield fields | {now: judged.get(name) for name, now in names.items()}
    else:
        if record is None:
            return
        row = None
    raise RunError(
        "damaged: the verdicts are not those of the rows: "
        f"{'no row' if row is None else f'row {row.id!r}'} stands where "
        f"{'no verdict' if record is None else 'the verdict of ' + repr(record['id'])} does",
        hint="remove verdicts.jsonl and run the same command again",
    )


def _free(name: str, taken: Iterable[str]) -> str:
    while name in taken:
        name += "_verdict"
    return name


def _types(table: Table) -> dict[str, str]:
    """Return the type of each column of a table, by all of its values."""
    kinds: dict[str, set[str]] = {name: set() for name in table.columns}
    for row in table:
        for name, value in row.fields.items():
            if value is not None:
                kinds.setdefault(name, set()).add(_kind(value))
    return {name: _type(found) for name, found in kinds.items()}


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int():
            return "int" if abs(value) <= _EXACT else "long" if abs(value) < 2**63 else "json"
        case float():
            return "float"
        case str():
            return "text"
    return "json"


def _type(kinds: set[str]) -> str:
    if not kinds:
        return "text"
    if kinds <= {"int", "long"}:
        return "int"
    if kinds <= {"int", "float"}:
        return "float"
    return next(iter(kinds)) if len(kinds) == 1 else "json"
