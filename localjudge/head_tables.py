"""What a fitted head is worth, on the terminal."""

from __future__ import annotations

from rich.text import Text

from localjudge.agreement_tables import side_by_side
from localjudge.head_fitting import Fitted, shown
from localjudge.terminal import console


def print_fitted(fitted: Fitted) -> None:
    """Print the labels, the figures of the judge as it is, calibrated and fitted, and the curve."""
    out, facts = console(), fitted.head.facts
    counts = ", ".join(f"{label} {count}" for label, count in facts.counts.items())
    out.print(Text(f"\n{facts.metric}", style="bold"))
    out.print(Text(f"  labels    {sum(facts.counts.values())}: {counts}"))
    for reason, count in fitted.left_out.items():
        out.print(Text(f"  left out  {count}: {reason}"))
    kind = "proportional odds" if facts.ordinal else "softmax regression"
    out.print(Text(f"  head      {kind}, held back by {facts.penalty:g}"))
    gain = fitted.gain
    ends = "" if gain.low is None else f" (95% interval {gain.low:.3f} to {gain.high:.3f})"
    out.print(Text(f"  gain      {gain.value:.3f} of log loss over the labels' shares{ends}"))
    out.print("\n  By cross-validation, each row judged by a head made without it:")
    sides = [(side, shown(figures)) for side, figures in fitted.figures.items()]
    out.print(side_by_side(sides))
    if fitted.curve:
        out.print("\n  With fewer labels, kappa (weighted by squares for scales):")
        points = ", ".join(f"{number}: {kappa:.2f}" for number, kappa in fitted.curve.items())
        out.print(Text(f"  {points}"))
