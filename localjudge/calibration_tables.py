"""What calibrating a run gains, on the terminal."""

from __future__ import annotations

from rich.text import Text

from localjudge.agreement_tables import side_by_side
from localjudge.calibrated_runs import Calibrating
from localjudge.terminal import console


def print_calibrating(made: Calibrating) -> None:
    """Print, for each metric, the labels, the map, and the figures with and without it."""
    out = console()
    for metric, found in made.found.items():
        out.print(Text(f"\n{metric}", style="bold"))
        counts = ", ".join(f"{label} {count}" for label, count in found.counts.items())
        out.print(Text(f"  labels  {sum(found.counts.values())}: {counts}"))
        out.print(Text(f"  map     {found.kind.name}, held back by {found.kind.penalty:g}"))
        gain = found.gain
        ends = "" if gain.low is None else f" (95% interval {gain.low:.3f} to {gain.high:.3f})"
        out.print(Text(f"  gain    {gain.value:.3f} of log loss over the labels' shares{ends}"))
        out.print("\n  By cross-validation, each row judged by a map made without it:")
        out.print(side_by_side([("raw", found.raw), ("calibrated", found.calibrated)]))
