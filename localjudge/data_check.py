"""The check of a run's data, which a start on the same bytes need not make again."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path

from localjudge.errors import DataError, RunError
from localjudge.outputs import unreadable
from localjudge.settings import read_settings
from localjudge.tables import Table, TableCheck, check_table


@dataclass(frozen=True, slots=True)
class DataCheck:
    """What is known of a table.

    Attributes:
        rows: Number of rows.
        digest: See `TableCheck`.
        mark: SHA-256 of the file's bytes and of how it is read; None if it is no single file, or
            changed meanwhile.
    """

    rows: int
    digest: str
    mark: str | None
    _table: Table
    _required: Iterable[str]
    _check: TableCheck | None = None

    def full(self) -> TableCheck:
        """Return the check of every row, making it if it was taken from an earlier start.

        Raises:
            DataError: as `check_table`, or the file has changed since.
        """
        check = self._check or check_table(self._table, self._required)
        if check.digest != self.digest:
            raise DataError(
                "the file is not what an earlier start made of the same bytes",
                path=self._table.source.name,
                hint="let nothing write to it; judge it in a new folder",
            )
        return check


def check_data(table: Table, required: Collection[str], out: Path) -> DataCheck:
    """Check `table`, or take the result from the run in `out`, if its data were the same bytes.

    Reading bytes is some twenty times as fast as reading rows. No date or size is trusted.

    Raises:
        DataError: see `check_table`.
    """
    before = _stamp(table.source.path)
    mark = _mark(table, required)
    known = None if mark is None else _known(out, mark)
    if known is not None:
        return DataCheck(*known, mark, table, required)
    check = check_table(table, required)
    if before != _stamp(table.source.path):
        mark = None
    return DataCheck(check.rows, check.digest, mark, table, required, check)


def _mark(table: Table, required: Iterable[str]) -> str | None:
    path, form = table.source.path, table.source.form
    if path is None or form is None:
        return None
    try:
        with path.open("rb") as file:
            content = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error
    read_as = [form, table.columns, table.id_column, table.limit, list(required)]
    return sha256(json.dumps([content, read_as]).encode()).hexdigest()


def _stamp(path: Path | None) -> tuple[int, int] | None:
    if path is None:
        return None
    try:
        facts = path.stat()
    except OSError:
        return None  # what is wrong with the file, reading it will say
    return facts.st_size, facts.st_mtime_ns


def _known(out: Path, mark: str) -> tuple[int, str] | None:
    """Return rows and digest of the run in `out`, if its data have that mark."""
    try:
        stored = read_settings(out / "run.json")
        if stored["info"]["data_mark"] == mark:
            return int(stored["data"]["rows"]), str(stored["data"]["digest"])
    except (RunError, KeyError, TypeError, ValueError):
        pass  # no run yet, or one that `RunStore.open` will speak of
    return None
