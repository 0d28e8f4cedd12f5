"""What two runs differ in: their settings, and the verdicts on the rows that both have."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, zip_longest
from typing import Any

from localjudge.records import Status, Verdict
from localjudge.runs import Run
from localjudge.settings import changed_settings

_NO_SETTINGS = (
    "started",
    "data_mark",
)  # of `info`: these say nothing of their own
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """A row whose value is another in the second run.

    Attributes:
        old: Its verdict in the first run.
        new: Its verdict in the second.
    """

    old: Verdict
    new: Verdict

    @property
    def margin(self) -> float:
        """The smaller of the two margins: how sure both runs were, of different answers."""
        margins = (margin(self.old), margin(self.new))
        return min(-1.0 if each is None else each for each in margins)


@dataclass(frozen=True, slots=True)
class Differences:
    """What two runs differ in.

    Attributes:
        settings: Dotted key and both values of each setting that is not the same.
        counts: For each metric, how many rows came out how: `same`, `changed`, `now failed`,
            `no longer failed`, `failed in both`, `only in the first`, `only in the second`.
        changes: Rows with another value, those of the largest margin first.
    """

    settings: tuple[tuple[str, str, str], ...]
    counts: Mapping[str, Counter[str]]
    changes: tuple[Change, ...]


def margin(verdict: Verdict) -> float | None:
    """Return the difference of the two largest probabilities; None if there are no two."""
    if verdict.probabilities is None or len(verdict.probabilities) < 2:
        return None
    first, second = heapq.nlargest(2, verdict.probabilities.values())
    return first - second


def compare_runs(old: Run, new: Run, *, limit: int) -> Differences:
    """Compare two runs, row by row of the same id and metric.

    Rows in the same order take no memory; others are held until their counterpart comes.

    Args:
        old: The first run.
        new: The second.
        limit: How many changes to return.

    Raises:
        RunError: the verdicts of a run cannot be read.
    """
    counts: dict[str, Counter[str]] = {}
    largest: list[tuple[float, int, Change]] = []
    number = count(0, -1)  # of equal margins, the first rows stay
    for before, after in _pairs(old.verdicts(), new.verdicts()):
        metric = (before or after).metric  # type: ignore[union-attr]  # never both None
        outcome = _outcome(before, after)
        counts.setdefault(metric, Counter())[outcome] += 1
        if outcome == "changed" and before is not None and after is not None:
            change = Change(before, after)
            heapq.heappush(largest, (change.margin, next(number), change))
            if len(largest) > limit:
                heapq.heappop(largest)
    changes = tuple(change for _, _, change in sorted(largest, key=lambda item: item[:2])[::-1])
    changed = changed_settings(_compared(old.settings), _compared(new.settings))
    return Differences(tuple(changed), counts, changes)


def _compared(settings: Mapping[str, Any]) -> dict[str, Any]:
    info = settings.get("info")
    kept = (
        {k: v for k, v in info.items() if k not in _NO_SETTINGS} if isinstance(info, dict) else {}
    )
    return {**settings, "info": kept}


def _outcome(before: Verdict | None, after: Verdict | None) -> str:
    if before is None:
        return "only in the second"
    if after is None:
        return "only in the first"
    match (before.status is Status.OK, after.status is Status.OK):
        case (True, True):
            return "same" if before.value == after.value else "changed"
        case (True, False):
            return "now failed"
        case (False, True):
            return "no longer failed"
    return "failed in both"


def _pairs(
    old: Iterable[Verdict], new: Iterable[Verdict]
) -> Iterator[tuple[Verdict | None, Verdict | None]]:
    """Yield the two verdicts of each row and metric; None where a run has none."""
    waiting_old: dict[_Key, Verdict] = {}
    waiting_new: dict[_Key, Verdict] = {}
    for before, after in zip_longest(old, new):
        if before is not None and after is not None and _key(before) == _key(after):
            yield before, after
            continue
        if before is not None:
            if (other := waiting_new.pop(_key(before), None)) is not None:
                yield before, other
            else:
                waiting_old[_key(before)] = before
        if after is not None:
            if (other := waiting_old.pop(_key(after), None)) is not None:
                yield other, after
            else:
                waiting_new[_key(after)] = after
    yield from ((verdict, None) for verdict in waiting_old.values())
    yield from ((None, verdict) for verdict in waiting_new.values())


def _key(verdict: Verdict) -> _Key:
    return verdict.id, verdict.metric
