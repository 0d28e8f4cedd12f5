"""The loop of a run: the rows that wait for a verdict, chunk by chunk, judged and saved."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

from localjudge.cache import VerdictCache, cache_keys
from localjudge.errors import RunError
from localjudge.judge import Asked, Judge
from localjudge.progress import ProgressFile
from localjudge.records import Row, Status, Verdict
from localjudge.store import RunStore
from localjudge.tasks import Task

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows under one metric.

    Attributes:
        places: Places in the data of the rows that the model is asked about.
        asked: Their prompts; None if there are none.
        keys: Their keys in the cache; None without one, or where a verdict is not kept.
        found: Place and verdict of the rows that the cache knew.
    """

    places: Sequence[int]
    asked: Asked | None
    keys: Sequence[bytes | None]
    found: Sequence[tuple[int, Verdict]]


@dataclass(frozen=True, slots=True)
class Loop:
    """How the rows of a run come to their verdicts.

    Attributes:
        judge: The judge.
        store: Where verdicts are saved, and which rows wait.
        cache: Where verdicts of any run are kept, if anywhere.
        judged_by: All that a verdict depends on beside metric and row, as JSON values.
        retry_failed: Whether rows with a failed verdict wait too.
        max_failures: With more failed verdicts than that, the run is stopped; None: never.
    """

    judge: Judge
    store: RunStore
    cache: VerdictCache | None = None
    judged_by: Mapping[str, Any] = field(default_factory=dict)
    retry_failed: bool = True
    max_failures: int | None = None

    def run(self, tasks: Sequence[Task], rows: Iterable[Row], progress: ProgressFile) -> None:
        """Judge the rows that wait. What is saved stays, whatever ends this.

        Raises:
            RunError: more than `max_failures` have failed.
        """
        start = time.monotonic()
        progress.judging()
        failures: Counter[str] = Counter()
        with closing(_ahead(self._chunks(tasks, rows))) as chunks:
            for chunk in chunks:
                judged = self.judge.answer(chunk.asked) if chunk.asked else []
                self.store.save([*chunk.found, *zip(chunk.places, judged, strict=True)])
                if self.cache is not None:
                    self.cache.add(zip(chunk.keys, judged, strict=True))
                now = progress.now
                failed = [verdict for verdict in judged if verdict.status is not Status.OK]
                failures.update(str(verdict.status) for verdict in failed)
                progress.judging(
                    done=now.done + len(judged) + len(chunk.found),
                    judged=now.judged + len(judged),
                    failed=now.failed + len(failed),
                    seconds=time.monotonic() - start,
                    reused=now.reused + len(chunk.found),
                    tokens=now.tokens + sum(map(_tokens, judged)),
                )
                if self.max_failures is not None and failures.total() > self.max_failures:
                    raise self._too_many(failures, failed[-1])

    def _chunks(self, tasks: Sequence[Task], rows: Iterable[Row]) -> Iterator[Chunk]:
        numbered = enumerate(rows)
        while chunk := list(islice(numbered, self.judge.chunk_rows)):
            for task in tasks:
                waiting = self.store.pending(
                    task.metric.name,
                    [(place, row.id) for place, row in chunk],
                    retry_failed=self.retry_failed,
                )
                todo = [item for item, wait in zip(chunk, waiting, strict=True) if wait]
                if todo:
                    yield self._chunk(task, todo)

    def _chunk(self, task: Task, todo: Sequence[tuple[int, Row]]) -> Chunk:
        """Take from the cache what it knows, and make prompts of the rest only."""
        keys: Sequence[bytes | None] = [None] * len(todo)
        known: Sequence[Verdict | None] = [None] * len(todo)
        if self.cache is not None:
            keys = cache_keys(task, [row for _, row in todo], self.judged_by)
            known = self.cache.find(keys)
        found: list[tuple[int, Verdict]] = []
        places: list[int] = []
        rows: list[Row] = []
        new_keys: list[bytes | None] = []
        for (place, row), key, verdict in zip(todo, keys, known, strict=True):
            if verdict is not None and self.cache is not None:
                self.cache.check(verdict, task, row)
                found.append((place, replace(verdict, id=row.id, metric=task.metric.name)))
            else:
                places.append(place)
                rows.append(row)
                new_keys.append(key)
        return Chunk(places, self.judge.ask(task, rows) if rows else None, new_keys, found)

    def _too_many(self, failures: Counter[str], last: Verdict) -> RunError:
        kinds = ", ".join(f"{number} {status}" for status, number in failures.most_common())
        return RunError(
            f"stopped: {failures.total()} verdicts have failed since this start, more than the "
            f"{self.max_failures} allowed ({kinds}); the last, of row {last.id!r} by "
            f"{last.metric}: {last.error}",
            path=self.store.folder,
            hint=f"look at them: localjudge show {self.store.folder} --status {last.status}; what "
            "was judged is kept, and the same command goes on",
        )


def _tokens(verdict: Verdict) -> int:
    """Return how many tokens went through the model; a prompt that is too long does not."""
    if verdict.status is Status.INPUT_TOO_LONG:
        return 0
    return verdict.prompt_tokens + verdict.output_tokens


def _ahead(items: Iterator[Item]) -> Generator[Item, None, None]:
    """Yield `items`, each made in another thread while the one before it is in use."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item
