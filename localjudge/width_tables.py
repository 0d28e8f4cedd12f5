"""What people see of the intervals that more labels would give."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from localjudge.statistics.figures import Figure
from localjudge.terminal import printable


def width_table(now: Mapping[str, Figure], expected: Mapping[int, Mapping[str, Figure]]) -> Table:
    """Return a table of the figures that have an interval: half its width now, and as expected.

    Args:
        now: The figures, by name.
        expected: Number of further labels to the figures with the intervals to expect then.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("  figure", "value", "now +-", *(f"{more} more +-" for more in expected)):
        table.add_column(column)
    for name, figure in now.items():
        if figure.value is None or figure.half_width is None:
            continue
        widths = (figure.half_width, *(each[name].half_width for each in expected.values()))
        cells = ["-" if width is None else f"{width:.3f}" for width in widths]
        shown = printable(name.replace("_", " ").replace(":", " of "), 48)
        table.add_row(Text("  ") + shown, f"{figure.value:.3f}", *cells)
    return table
