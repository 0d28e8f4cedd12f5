"""How wide an interval is, and how wide it would be with more labels."""

from __future__ import annotations

from math import sqrt

from localjudge.statistics.figures import Figure


def half_width(figure: Figure) -> float | None:
    """Return half the width of a figure's interval; None where it has none."""
    if figure.low is None or figure.high is None:
        return None
    return (figure.high - figure.low) / 2


def expected_width(figure: Figure, labelled: int, more: int) -> float | None:
    """Return half the width to expect of a figure's interval with more labels.

    It is that of now times `sqrt(n / (n + m))`: a bootstrap that draws n + m rows out of the n of
    the pilot comes to the same, but for terms of the order of 1/n. So it is no better than the
    pilot: rows that come later may be harder, and a width from few labels is itself uncertain, by
    about `1 / sqrt(2 n)` of it where the figure is a mean, and more near 0 and 1.

    Args:
        figure: A figure of the pilot, whose interval is of n rows.
        labelled: n, the number of labelled rows now.
        more: m, how many labels more.

    Returns:
        None where the figure has no interval.

    Raises:
        ValueError: `labelled` is not positive, or `more` is negative.
    """
    if labelled < 1 or more < 0:
        raise ValueError(f"no width from {labelled} labels and {more} more")
    now = half_width(figure)
    return None if now is None else now * sqrt(labelled / (labelled + more))
