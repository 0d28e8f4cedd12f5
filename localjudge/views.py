"""What people see of runs that are there: verdicts, a comparison, how far one is."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice

from rich.table import Table
from rich.text import Text

from localjudge.differences import Change, Differences, margin
from localjudge.progress import RunStatus
from localjudge.records import Status, Verdict
from localjudge.terminal import console, duration, pace, printable

_SHOWN = 5  # answers of a distribution, the most probable
_WHY = "explanation, or why not"
_WIDE = 110  # columns of a terminal from which on nothing need be stacked


def print_verdicts(verdicts: Iterable[Verdict], limit: int) -> None:
    """Print the first `limit` verdicts as a table, and how many more there are."""
    rest = iter(verdicts)
    shown = list(islice(rest, limit))
    out = console()
    if not shown:
        out.print("no verdict fits")
        return
    wordy = any(verdict.explanation or verdict.error for verdict in shown)
    if not wordy:
        table, row = _table("id", "metric", "verdict", "probabilities", "mass"), _wide
    elif out.width >= _WIDE:
        columns = ("id", "metric", "verdict", "probabilities", "mass", _WHY)
        table, row = _table(*columns), _wide
    else:
        table, row = _table("id, metric", "verdict", "probabilities", _WHY), _narrow
    for verdict in shown:
        table.add_row(*row(verdict)[: len(table.columns)])
    out.print(table)
    if more := sum(1 for _ in rest):
        out.print(f"... and {more} more")


def print_differences(differences: Differences) -> None:
    """Print what two runs differ in: settings, then counts, then rows with another value."""
    out = console()
    if differences.settings:
        settings = _table("setting", "first run", "second run")
        for row in differences.settings:
            settings.add_row(*map(printable, row))
        out.print(settings)
    else:
        out.print("the settings are the same")
    changed = 0
    for metric, counts in differences.counts.items():
        changed += counts["changed"]
        out.print(Text(f"\n{' '.join(metric.split())}", style="bold"))
        for outcome, number in counts.most_common():
            out.print(f"  {outcome:<18} {number} ({number / counts.total():.0%})")
    if differences.changes:
        out.print("\nrows with another answer, those first of which both runs were sure")
        table = _table("id", "metric", "first run", "margin", "second run", "margin")
        for change in differences.changes:
            table.add_row(*_change(change))
        out.print(table)
    if more := changed - len(differences.changes):
        out.print(f"... and {more} more")


def print_status(status: RunStatus) -> None:
    """Print what a run is doing and how far it is."""
    out = console()
    now = status.progress
    state = {"loading": "loading the model", "writing": "writing the files"}
    said = state.get(status.state, status.state)
    out.print(Text(said if status.holder is None else f"{said}, {status.holder}", style="bold"))
    share = f" ({now.done / now.total:.0%})" if now.total else ""
    out.print(f"  done        {now.done} of {now.total}{share}")
    made = f"  this start  {now.judged} judged: {now.judged - now.failed} ok, {now.failed} failed"
    out.print(made + (f"; {now.reused} from the cache" if now.reused else ""))
    if now.rows_per_second is not None:
        out.print(f"  speed       {pace(now)}")
    if status.state == "judging" and now.seconds_left is not None:
        out.print(f"  time left   {duration(now.seconds_left)}")
    out.print(f"  written     {duration(max(0.0, time.time() - status.updated))} ago")
    if status.error:
        out.print(Text(f"  error       {status.error}", style="red"))
    if status.state == "stopped":
        out.print("the same command goes on from here")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _outcome(verdict: Verdict) -> Text:
    if verdict.status is Status.OK:
        return printable(str(verdict.value))
    return Text(str(verdict.status), style="red")


def _change(change: Change) -> list[Text]:
    cells = [printable(change.old.id, 32), printable(change.old.metric)]
    for verdict in (change.old, change.new):
        sure = margin(verdict)
        cells += [_outcome(verdict), Text("" if sure is None else f"{sure:.2f}")]
    return cells


def _wide(verdict: Verdict) -> list[Text]:
    return [
        printable(verdict.id, 32),
        printable(verdict.metric),
        _outcome(verdict),
        Text(", ").join(_distribution(verdict)),
        Text("" if verdict.answer_mass is None else f"{verdict.answer_mass:.2g}"),
        printable(verdict.explanation or verdict.error or ""),
    ]


def _narrow(verdict: Verdict) -> list[Text]:
    row_id, metric, outcome, _, mass, why = _wide(verdict)
    numbers = [*_distribution(verdict), *([Text("mass ") + mass] if mass else [])]
    return [row_id + "\n" + metric, outcome, Text("\n").join(numbers), why]


def _distribution(verdict: Verdict) -> list[Text]:
    ranked = sorted((verdict.probabilities or {}).items(), key=lambda item: -item[1])
    return [printable(f"{answer} {share:.2f}") for answer, share in ranked[:_SHOWN]]
