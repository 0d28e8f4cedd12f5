"""What people see of agreement: figures with their intervals, and who said what how often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from localjudge.agreement import Agreement
from localjudge.records import Status
from localjudge.statistics.figures import Figure
from localjudge.terminal import console, printable
from localjudge.width_tables import width_table

_WIDEST = 12  # labels of a confusion matrix that a terminal has room for


def print_agreements(agreements: Sequence[Agreement]) -> None:
    """Print each metric's agreement with people."""
    out = console()
    for agreement in agreements:
        out.print(Text(f"\n{agreement.metric}", style="bold"))
        if agreement.calibration is not None:
            _print_calibration(out, agreement.calibration)
        _print_matches(out, agreement)
        out.print()
        out.print(_figures(agreement.figures))
        out.print()
        out.print(_by_label(agreement))
        _print_confusion(out, agreement)
        _print_ceiling(out, agreement)
        if agreement.expected:
            out.print()
            out.print(width_table(agreement.figures, agreement.expected))


def _print_calibration(out: Console, calibration: Literal["fitted_here", "elsewhere"]) -> None:
    out.print("  calibrated verdicts")
    if calibration == "fitted_here":
        out.print(
            Text(
                "  the calibration was fitted on these very labels: the figures are too good", "red"
            )
        )


def _print_matches(out: Console, agreement: Agreement) -> None:
    ids = agreement.matches
    out.print(
        f"  ids         {ids.matched} matched, {ids.human_only} only labelled, "
        f"{ids.judge_only} only judged, {ids.repeated} on several lines"
    )
    if ids.unlabelled:
        out.print(f"  unlabelled  {ids.unlabelled} lines have no label")
    if ids.tied:
        out.print(f"  tied        {ids.tied} rows are left out: their raters are split evenly")
    out.print(f"  compared    {agreement.rows} rows")
    for status, number in agreement.statuses.items():
        style = "" if status == Status.OK else "red"
        out.print(Text(f"    {status:<18}{number}", style=style))


def _figures(figures: Mapping[str, Figure]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("  figure", "value", "95% interval", ""):
        table.add_column(column)
    for name, figure in figures.items():
        value, ends = _value(figure), _interval(figure)
        table.add_row(f"  {name.replace('_', ' ')}", value, ends, figure.reason or "")
    return table


def _value(figure: Figure) -> str:
    return "-" if figure.value is None else f"{figure.value:.3f}"


def _interval(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return "-"
    return f"{figure.low:.3f} to {figure.high:.3f}"


def _by_label(agreement: Agreement) -> Table:
    names = list(dict.fromkeys(name for of in agreement.by_label.values() for name in of))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("  label", "people", "judge", *(name.replace("_", " ") for name in names)):
        table.add_column(column)
    verdicts = [sum(column) for column in zip(*agreement.confusion, strict=True)]
    for place, (label, figures) in enumerate(agreement.by_label.items()):
        table.add_row(
            Text("  ") + printable(label, 32),
            str(sum(agreement.confusion[place])),
            str(verdicts[place]),
            *(_short(figures[name]) for name in names),
        )
    return table


def _short(figure: Figure) -> str:
    if figure.low is None:
        return _value(figure)
    return f"{_value(figure)} ({_interval(figure)})"


def _print_confusion(out: Console, agreement: Agreement) -> None:
    if len(agreement.labels) > _WIDEST:
        out.print(f"\n  {len(agreement.labels)} labels: --json FILE has the confusion matrix")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("  people \\ judge")
    for label in agreement.labels:
        table.add_column(printable(label, 16), justify="right")
    for label, counts in zip(agreement.labels, agreement.confusion, strict=True):
        table.add_row(Text("  ") + printable(label, 32), *map(str, counts))
    out.print()
    out.print(table)


def _print_ceiling(out: Console, agreement: Agreement) -> None:
    ceiling = agreement.ceiling
    if ceiling is None:
        return
    out.print(f"\n  {ceiling.rows} rows have several raters and a verdict.")
    sides = [("one rater", ceiling.humans), ("the judge", ceiling.judge)]
    out.print("  Against the consensus of a row's other raters:")
    out.print(side_by_side(sides))
    for rater, compared in ceiling.raters.items():
        out.print(Text("\n  Rater ") + printable(rater, 32) + Text(":"))
        named = [(side.replace("_", " "), figures) for side, figures in compared.items()]
        out.print(side_by_side(named))


def side_by_side(sides: Sequence[tuple[str, Mapping[str, Figure]]]) -> Table:
    """Return a table of the same figures of several sides, one column each."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("  figure", *(side for side, _ in sides)):
        table.add_column(column)
    for name in dict.fromkeys(name for _, figures in sides for name in figures):
        cells = [_short(figures[name]) if name in figures else "" for _, figures in sides]
        table.add_row(f"  {name.replace('_', ' ')}", *cells)
    return table
