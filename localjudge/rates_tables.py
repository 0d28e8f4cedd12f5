"""What people see of corrected rates."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from localjudge.rates import ESTIMATES, Rates
from localjudge.statistics.figures import Figure
from localjudge.terminal import console, printable
from localjudge.width_tables import width_table

_SHOWN = {
    "judge": "judge alone",
    "labelled": "labelled rows alone",
    "rogan_gladen": "Rogan-Gladen",
    "ppi": "prediction-powered",
}
ADVICE = (
    "Read `prediction-powered` if the labelled rows are a random sample of the run: it needs "
    "nothing else, however wrong the judge is.",
    "Read `Rogan-Gladen` if they are not, but the judge errs on each true label as often there as "
    "elsewhere.",
)


def print_rates(found: Sequence[Rates]) -> None:
    """Print each metric's shares, and what stands against them."""
    out = console()
    for rates in found:
        out.print(Text(f"\n{rates.metric}", style="bold"))
        _print_rows(out, rates)
        for warning in rates.warnings:
            out.print(Text(f"  warning     {warning}", style="yellow"))
        out.print()
        out.print(_shares(rates))
        if rates.expected:
            out.print()
            out.print(width_table(rates.figures, rates.expected))
    out.print()
    for sentence in ADVICE:
        out.print(Text(sentence))


def _print_rows(out: Console, rates: Rates) -> None:
    out.print(f"  labelled    {rates.labelled} rows with a verdict")
    out.print(f"  unlabelled  {rates.unlabelled} rows with a verdict")
    failed = {status: number for status, number in rates.statuses.items() if status != "ok"}
    counts = "".join(f", {number} {status}" for status, number in failed.items())
    out.print(f"  coverage    {rates.coverage:.1%}{counts}")
    if rates.matches.human_only or rates.matches.tied:
        out.print(
            f"  left out    {rates.matches.human_only} labelled rows that are not in the run, "
            f"{rates.matches.tied} whose raters are split evenly"
        )


def _shares(rates: Rates) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("  label", "estimate", "share", "95% interval", ""):
        table.add_column(column)
    for label in rates.labels:
        for place, estimate in enumerate(ESTIMATES):
            first = Text("  ") + printable(label, 32) if place == 0 else Text()
            table.add_row(first, *_cells(estimate, rates.figures[f"{estimate}:{label}"]))
    means = [estimate for estimate in ESTIMATES if rates.has_mean(estimate)]
    for place, estimate in enumerate(means):
        first = Text("  mean grade" if place == 0 else "")
        table.add_row(first, *_cells(estimate, rates.figures[f"{estimate}_mean"]))
    return table


def _cells(estimate: str, figure: Figure) -> tuple[str | Text, ...]:
    value = "-" if figure.value is None else f"{figure.value:.3f}"
    ends = "-"
    if figure.low is not None and figure.high is not None:
        ends = f"{figure.low:.3f} to {figure.high:.3f}"
    return _SHOWN[estimate], value, ends, Text(figure.reason or "")
