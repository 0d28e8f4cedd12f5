"""What people see of the intervals that more labels would give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from localjudge.agreement import Agreement
from localjudge.statistics.figures import Figure
from localjudge.statistics.widths import expected_width, half_width
from localjudge.terminal import console, printable


def print_widths(agreements: Sequence[Agreement], more_labels: Sequence[int]) -> None:
    """Print how wide the intervals of each metric's agreement would be with more labels."""
    out = console()
    for agreement in agreements:
        expected = {
            more: {
                name: expected_width(figure, agreement.rows, more)
                for name, figure in agreement.figures.items()
            }
            for more in more_labels
        }
        out.print(Text(f"\n{agreement.metric}", style="bold"))
        out.print(width_table(agreement.figures, expected))


def width_table(
    now: Mapping[str, Figure], expected: Mapping[int, Mapping[str, float | None]]
) -> Table:
    """Return a table of the figures that have an interval: half its width now, and as expected.

    Args:
        now: The figures, by name.
        expected: Number of further labels to half the width of each figure's interval then.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    heads = ("  figure", "value", "now +-", *(f"{more} more +-" for more in expected))
    for column in heads:
        table.add_column(column)
    for name, figure in now.items():
        if figure.value is None or half_width(figure) is None:
            continue
        widths = (half_width(figure), *(each[name] for each in expected.values()))
        cells = ["-" if width is None else f"{width:.3f}" for width in widths]
        shown = printable(name.replace("_", " ").replace(":", " of "), 48)
        table.add_row(Text("  ") + shown, f"{figure.value:.3f}", *cells)
    return table
