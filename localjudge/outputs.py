"""Files out: verdicts as JSON Lines and Parquet, each whole or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import ENOSPC
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from localjudge.errors import RunError
from localjudge.records import VERDICT_FIELDS, Verdict

if TYPE_CHECKING:
    import pyarrow as pa


_LARGEST = 2**53  # up to there, every integer is a float too


def write_jsonl(verdicts: Iterable[Verdict], path: str | PathLike[str]) -> None:
    """Write verdicts as JSON Lines, one `Verdict.to_json` a line.

    JSON declares no types: `datasets` guesses them from the first 10 MB. A larger file, in which a
    column is null for so long and text later (one row failed), or answers differ from row to row,
    loads there only with `features`. No shape of the lines cures that but texts in place of
    nulls, which could be taken for values. Parquet declares its types and always loads.

    Raises:
        RunError: the file cannot be written. Nothing is left under its name.
    """
    write_lines((verdict.to_json() for verdict in verdicts), path)


def read_line(line: str) -> Verdict:
    """Read a line of `write_jsonl`.

    Raises:
        ValueError: it is no such line, or holds what no other file of a run could hold: half of a
            surrogate pair, or a number that is out of range.
    """
    verdict = Verdict.from_json(line)
    if "\\ud" in line.lower():
        verdict.to_json().encode()
    numbers = [getattr(verdict, name) for name in VERDICT_FIELDS]
    for number in (*numbers, *(verdict.probabilities or {}).values()):
        if isinstance(number, int) and abs(number) > _LARGEST:
            raise ValueError("a number is out of range")
    return verdict


def write_lines(lines: Iterable[str], path: str | PathLike[str]) -> None:
    """Write lines of text that are JSON already.

    Raises:
        RunError: the file cannot be written. Nothing is left under its name.
    """
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def write_parquet(verdicts: Iterable[Verdict], path: str | PathLike[str]) -> None:
    """Write verdicts as Parquet.

    The columns and their types are the same whatever the metric: those of `Verdict`, with `value`
    as text, `probabilities` as a list of `answer` and `probability`, and `metadata` as JSON text.

    Raises:
        RunError: the file cannot be written. Nothing is left under its name.
    """
    import pyarrow.parquet as pq

    schema = _schema()
    with (
        replacing(path) as partial,
        partial.open("wb") as file,
        pq.ParquetWriter(file, schema) as writer,
    ):
        for batch in _record_batches(verdicts, schema):
            writer.write_batch(batch)


def verdict_table(verdicts: Iterable[Verdict]) -> pa.Table:
    """Return verdicts as an Arrow table, with the columns that `write_parquet` writes."""
    import pyarrow as pa

    schema = _schema()
    return pa.Table.from_batches(_record_batches(verdicts, schema), schema)


def _record_batches(
    verdicts: Iterable[Verdict], schema: pa.Schema
) -> Generator[pa.RecordBatch, None, None]:
    remaining = iter(verdicts)
    while batch := list(islice(remaining, 10_000)):
        yield _record_batch(batch, schema)


def _schema() -> pa.Schema:
    import pyarrow as pa

    answer = pa.struct([("answer", pa.string()), ("probability", pa.float64())])
    return pa.schema(
        [
            ("id", pa.string()),
            ("metric", pa.string()),
            ("status", pa.string()),
            ("value", pa.string()),
            ("label", pa.string()),
            ("score", pa.float64()),
            ("probabilities", pa.list_(answer)),
            ("confidence", pa.float64()),
            ("answer_mass", pa.float64()),
            ("expected_score", pa.float64()),
            ("explanation", pa.string()),
            ("direction", pa.string()),
            ("truncated", pa.bool_()),
            ("prompt_tokens", pa.int64()),
            ("output_tokens", pa.int64()),
            ("error", pa.string()),
            ("metadata", pa.string()),
        ]
    )


def _record_batch(verdicts: Sequence[Verdict], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    rows = []
    for verdict in verdicts:
        row = verdict.to_dict()
        row["value"] = None if verdict.value is None else str(verdict.value)
        row["metadata"] = json.dumps(row["metadata"], ensure_ascii=False, allow_nan=False)
        if verdict.probabilities is not None:
            row["probabilities"] = [
                {"answer": answer, "probability": probability}
                for answer, probability in verdict.probabilities.items()
            ]
        rows.append(row)
    return pa.RecordBatch.from_pylist(rows, schema)


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[Path]:
    """Give a name beside `path` to write to; what was written takes the name `path` at the end.

    If the block fails, `path` is as it was before. What has the name `path` is always whole.

    Raises:
        RunError: the file cannot be written.
    """
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):
            partial.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def made(folder: str | PathLike[str]) -> Path:
    """Make a folder, if it is not there, and return its path.

    Raises:
        RunError: it cannot be made.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def read_whole(path: Path, most: int) -> bytes:
    """Return what a file holds.

    Raises:
        RunError: it cannot be read, is not a regular file, or is larger than `most` bytes.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would keep us
            raise RunError("this is not a regular file", path=path, hint="name one file")
        if path.stat().st_size > most:
            raise RunError(f"is larger than {most:,} bytes", path=path, hint="name another file")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError | ValueError) -> RunError:
    """Return the error that says why `path` cannot be read and what to do."""
    hint = "check the path, and that this user may read it"
    reason = getattr(error, "strerror", None) or error
    return RunError(f"cannot be read: {reason}", path=path, hint=hint)


def unwritable(path: Path, error: OSError) -> RunError:
    """Return the error that says why `path` cannot be written and what to do."""
    hint = "choose a folder that this user may write to"
    if error.errno == ENOSPC:
        hint = "free some space on the disk and run the same command again"
    return RunError(f"cannot be written: {error.strerror or error}", path=path, hint=hint)
