"""Verdicts kept across runs: what was judged before is not judged again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from localjudge.answers import Text, document
from localjudge.database import as_run_errors
from localjudge.errors import DataError, RunError
from localjudge.outcomes import Refusal
from localjudge.outputs import read_line
from localjudge.records import Status, Verdict

if TYPE_CHECKING:
    from localjudge.records import Row
    from localjudge.tasks import Task

_SCHEMA = "CREATE TABLE IF NOT EXISTS kept (key BLOB NOT NULL PRIMARY KEY, verdict TEXT NOT NULL)"
_DELETE = "delete the file: it only saves time"
_NEAR = 1e-6  # that probabilities may miss a sum of 1 by
_WAIT = 60.0  # seconds that one run lets another finish its chunk


class VerdictCache:
    """A folder of verdicts that several runs may use at once; it may be deleted at any time.

    Its methods may be called in two threads at once. All raise RunError if the folder cannot be
    used, the disk is full or the file is damaged.
    """

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        self._path = path
        self._db = db
        self._lock = Lock()

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> VerdictCache:
        """Open the cache in `folder`, or make it, readable by this user only."""
        path = Path(folder) / "verdicts-cache.db"
        with as_run_errors(path, _DELETE):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            db = sqlite3.connect(path, timeout=_WAIT, check_same_thread=False)
            try:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = NORMAL")
                db.execute(_SCHEMA)
            except BaseException:
                db.close()
                raise
        return cls(path, db)

    def find(self, keys: Sequence[bytes | None]) -> list[Verdict | None]:
        """Return what is kept under each key, or None. Id and metric are to be set anew."""
        found: list[Verdict | None] = []
        with self._lock, as_run_errors(self._path, _DELETE):
            for key in keys:
                query = "SELECT verdict FROM kept WHERE key = ?"
                kept = None if key is None else self._db.execute(query, (key,)).fetchone()
                found.append(None if kept is None else self._read(kept[0]))
        return found

    def add(self, items: Iterable[tuple[bytes | None, Verdict]]) -> None:
        """Keep the verdicts that are `ok` and have a key."""
        rows = [
            (key, replace(verdict, id="", metric="").to_json())
            for key, verdict in items
            if key is not None and verdict.status is Status.OK
        ]
        with self._lock, as_run_errors(self._path, _DELETE), self._db:
            self._db.executemany("INSERT OR IGNORE INTO kept VALUES (?, ?)", rows)

    def check(self, verdict: Verdict, task: Task, row: Row) -> None:
        """Make sure that a verdict from here is one that the metric can give on that row.

        Raises:
            RunError: it is not: the file was changed, or is from elsewhere.
        """
        if not _is_possible(verdict, task, row):
            raise RunError(
                f"damaged: what is kept for row {row.id!r} is no answer of the metric "
                f"{task.metric.name}: {verdict.value!r}",
                path=self._path,
                hint=_DELETE,
            )

    def _read(self, text: str) -> Verdict:
        try:
            return read_line(text)
        except (ValueError, TypeError) as error:
            raise RunError(
                f"damaged: a verdict cannot be read: {error}",
                path=self._path,
                hint=_DELETE,
            ) from None

    def close(self) -> None:
        """Close the file."""
        with self._lock, closing(self._db):
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cache_keys(task: Task, rows: Sequence[Row], judged_by: Mapping[str, Any]) -> list[bytes | None]:
    """Return the SHA-256 of all that each row's verdict depends on, the row's id aside.

    Args:
        task: The metric.
        rows: The rows.
        judged_by: JSON values: the model, the engine and how it asks.

    Returns:
        One key for each row; None where there is nothing to ask about it.
    """
    common = json.dumps([task.metric.digest, judged_by], sort_keys=True)
    return [_key(common, task, row) for row in rows]


def _is_possible(verdict: Verdict, task: Task, row: Row) -> bool:
    questions = task.questions(row)
    if isinstance(questions, Refusal) or verdict.status is not Status.OK:
        return False
    variant, value = questions[0].variant, verdict.value
    if isinstance(variant.answers, Text):
        try:
            return variant.answers.parse(document(str(value))) == value
        except ValueError:
            return False
    space = variant.answers
    answers = {(type(answer), answer) for answer in variant.values}
    if value is None or (type(value), value) not in answers:
        return False
    label = value if space.kind == "classify" else None
    if (verdict.label, verdict.score) != (label, space.score(value)):
        return False
    shares = verdict.probabilities
    if shares is None:
        return verdict.confidence is None
    return (
        list(shares) == list(map(str, variant.values))
        and all(0 <= share <= 1 for share in shares.values())
        and abs(sum(shares.values()) - 1) < _NEAR
        and verdict.confidence == shares[str(value)]
    )


def _key(common: str, task: Task, row: Row) -> bytes | None:
    try:
        questions = task.questions(row)
    except (DataError, RecursionError):
        return None
    if isinstance(questions, Refusal):
        return None
    asked = [
        [
            question.variant.swapped,
            question.variant.values,
            question.variant.messages.system,
            question.variant.messages.user_head,
            question.body,
        ]
        for question in questions
    ]
    return sha256(f"{common}\n{json.dumps(asked)}".encode()).digest()
