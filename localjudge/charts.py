"""Where the marks of a chart stand: numbers in, places on a canvas out. Templates draw them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from localjudge.disagreements import Beside, Bin
from localjudge.findings import ends, number
from localjudge.statistics.figures import Figure

_WIDTH, _LEFT, _RIGHT = 360.0, 44.0, 10.0
_TOP, _BOTTOM = 16.0, 40.0
_PER_STEP = 4  # heights of the bubbles within one step of a scale
_WIDEST = 9.0  # radius of the largest bubble


@dataclass(frozen=True, slots=True)
class Axis:
    """A line on which numbers stand.

    Attributes:
        low: The number at its start.
        high: The number at its end.
        start: Where it starts on the canvas.
        end: Where it ends; less than `start` for an axis that points upwards.
        ticks: The numbers that are written beside it.
    """

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Return where a number stands; what is beyond an end stands on it."""
        held = min(max(value, self.low), self.high)
        share = (held - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


@dataclass(frozen=True, slots=True)
class Mark:
    """A point with the interval around it.

    Attributes:
        x: Its place from left to right.
        y: Its place from the top.
        low: Where its interval begins, along the axis of the figure; None if it has none.
        high: Where its interval ends.
        radius: How large it is; 0 if it is not to be drawn.
        text: What it says.
        note: What is written above its interval.
    """

    x: float
    y: float
    low: float | None
    high: float | None
    radius: float
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A bar: its corner on the upper left, its size, and what it says."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: size of the canvas, axes and marks.

    Attributes:
        height: Of the canvas; every canvas has the same width.
        x: The axis from left to right.
        y: The axis from below; None if there is none.
        marks: Points.
        boxes: Bars.
        means: Points of another kind than `marks`.
        names: What stands beside each mark, if it has a line of its own.
    """

    height: float
    x: Axis
    y: Axis | None = None
    marks: tuple[Mark, ...] = ()
    boxes: tuple[Box, ...] = ()
    means: tuple[Mark, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def width(self) -> float:
        """Width of the canvas."""
        return _WIDTH


def histogram(counts: Sequence[int]) -> Chart:
    """Return bars of how many rows fall into each of equal parts from 0 to 1."""
    height, most = 170.0, max(counts, default=0)
    x = Axis(0, 1, _LEFT, _WIDTH - _RIGHT, (0, 0.2, 0.4, 0.6, 0.8, 1))
    y = Axis(0, max(1, most), height - _BOTTOM, _TOP + 12, (0, most) if most else (0,))
    boxes = []
    for place, rows in enumerate(counts):
        low, high = place / len(counts), (place + 1) / len(counts)
        left, top = x.at(low) + 1, y.at(rows)
        text = f"{low:.1f} to {high:.1f}: {rows:,} rows"
        boxes.append(Box(left, top, round(x.at(high) - left, 1), round(y.start - top, 1), text))
    return Chart(height, x, y, boxes=tuple(boxes))


def reliability(bins: Sequence[Bin]) -> Chart:
    """Return accuracy against confidence, a point for each bin that has rows."""
    height = _WIDTH - _LEFT - _RIGHT + _TOP + _BOTTOM
    ticks = (0, 0.2, 0.4, 0.6, 0.8, 1)
    x = Axis(0, 1, _LEFT, _WIDTH - _RIGHT, ticks)
    y = Axis(0, 1, height - _BOTTOM, _TOP, ticks)
    most = max((each.rows for each in bins), default=1)
    marks = []
    for each in bins:
        if each.confidence is None or each.accuracy is None or each.interval is None:
            continue
        text = (
            f"confidence {each.confidence:.2f}, accuracy {each.accuracy:.2f} "
            f"({each.interval[0]:.2f} to {each.interval[1]:.2f}), {each.rows:,} rows"
        )
        marks.append(
            Mark(
                x.at(each.confidence),
                y.at(each.accuracy),
                y.at(each.interval[0]),
                y.at(each.interval[1]),
                _radius(each.rows, most),
                text,
                f"{each.rows:,}",
            )
        )
    return Chart(height, x, y, tuple(marks))


def intervals(figures: Mapping[str, Figure]) -> Chart:
    """Return figures from -1 to 1 below one another, each with its interval; those undefined too.

    Args:
        figures: Name to figure.
    """
    row, top = 40.0, 8.0
    height = top + row * len(figures) + 34
    lowest = [end for each in figures.values() for end in (each.low, each.value) if end is not None]
    start = -1.0 if min(lowest, default=0.0) < -0.5 else -0.5
    ticks = tuple(start + 0.5 * step for step in range(int((1 - start) / 0.5) + 1))
    x = Axis(start, 1, 14, _WIDTH - 14, ticks)
    marks = []
    for place, figure in enumerate(figures.values()):
        y = top + row * place + 26
        if figure.value is None:
            marks.append(Mark(x.at(0), y, None, None, 0.0, "not defined"))
            continue
        low, high, text = None, None, number(figure.value)
        if figure.low is not None and figure.high is not None:
            low, high, text = x.at(figure.low), x.at(figure.high), f"{text} ({ends(figure)})"
        marks.append(Mark(x.at(figure.value), y, low, high, 5.0, text))
    return Chart(height, x, marks=tuple(marks), names=tuple(figures))


def grades(rows: Iterable[Beside], labels: Sequence[str]) -> Chart:
    """Return the judge's grades against people's: bubbles of rows, and the mean for each grade.

    The judge's grade is the expected one where there is one, else that of the verdict.

    Args:
        rows: The compared rows.
        labels: The grades, ascending.
    """
    low, high = float(labels[0]), float(labels[-1])
    height = _WIDTH - _LEFT - _RIGHT + _TOP + _BOTTOM
    ticks = tuple(map(float, labels)) if len(labels) <= 11 else (low, high)
    x = Axis(low - 0.5, high + 0.5, _LEFT, _WIDTH - _RIGHT, ticks)
    y = Axis(low - 0.5, high + 0.5, height - _BOTTOM, _TOP, ticks)
    cells: Counter[tuple[float, float]] = Counter()
    sums: dict[float, list[float]] = {}
    for row in rows:
        grade = judged_grade(row)
        if grade is None:
            continue
        human = float(row.human)
        cells[human, round(grade * _PER_STEP) / _PER_STEP] += 1
        sums.setdefault(human, []).append(grade)
    most = max(cells.values(), default=1)
    marks = [
        Mark(
            x.at(human),
            y.at(grade),
            None,
            None,
            _radius(rows_there, most),
            f"people {human:g}, judge about {grade:g}: {rows_there:,} rows",
        )
        for (human, grade), rows_there in sorted(cells.items())
    ]
    means = [
        Mark(
            x.at(human),
            y.at(sum(each) / len(each)),
            None,
            None,
            5.0,
            f"people {human:g}: judge's mean {sum(each) / len(each):.2f}",
        )
        for human, each in sorted(sums.items())
    ]
    return Chart(height, x, y, tuple(marks), means=tuple(means))


def judged_grade(row: Beside) -> float | None:
    """Return the judge's grade of a row, the expected one if there is one; None if it failed."""
    verdict = row.verdict
    if verdict.expected_score is not None:
        return verdict.expected_score
    return None if verdict.value is None else float(verdict.value)


def _radius(rows: int, most: int) -> float:
    """Return the radius at which areas are in proportion, but for a least size that is seen."""
    return round(max(3.0, _WIDEST * sqrt(rows / most)), 1)
