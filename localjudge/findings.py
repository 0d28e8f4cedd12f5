"""What figures say about using a judge: sentences, each by a rule that the report states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from localjudge.agreement import Agreement
from localjudge.disagreements import Bin
from localjudge.statistics.figures import Figure

Tag = Literal["not known", "no better than chance", "below people", "better than chance"]
RULES = (
    "The measure is Cohen's kappa; for a scale it is weighted by the square of the steps. Every "
    "interval is a 95% bootstrap interval.",
    "If the interval of kappa includes 0, or lies below it, the judge counts as no better than "
    "chance on these rows. That is no proof that it is: more labelled rows may show otherwise. A "
    "judge that gives every row the same answer, where people do not, counts as no better either.",
    "If the interval lies above 0, it counts as better than chance. Where rows have several "
    "raters, each rater in turn is compared with the consensus of the others, and so is the judge: "
    "if the judge's kappa lies below the interval of the raters' kappa, it is below people.",
    "Where judge and people never differ, there is no interval. With n rows, up to a share of 3/n "
    "could still differ (rule of three); if that is less than differ by chance, the judge counts "
    "as better than chance.",
    "One answer for all rows is right as often as the most frequent human label; the judge's "
    "accuracy is compared with that.",
    "An answer is said to be given too often or too seldom if its share differs from people's by "
    "a tenth of the rows or more; grades to be too high or low if the 95% interval of the mean "
    "difference (normal approximation) excludes 0.",
    "The judge is said to be too sure or not sure enough if its mean confidence lies outside the "
    "interval of its accuracy; to rank rows better than chance if the interval of AUROC lies above "
    "0.5.",
)
_NAMED = 48  # characters of a label within a sentence
_MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True, slots=True)
class Use:
    """Whether the figures speak for using a judge.

    Attributes:
        tag: In a word.
        sentence: In a sentence, with the figures.
    """

    tag: Tag
    sentence: str


def number(value: float, digits: int = 2) -> str:
    """Return a number as text, with a true minus."""
    text = f"{value:.{digits}f}"
    zero = f"{0:.{digits}f}"
    return zero if text == f"-{zero}" else text.replace("-", _MINUS)


def ends(figure: Figure) -> str:
    """Return the interval of a figure as text, which must have one."""
    if figure.low is None or figure.high is None:
        raise ValueError("the figure has no interval")
    # An end next to 0 is written so that its side of 0 is seen.
    near = [abs(end) for end in (figure.low, figure.high) if 0 < abs(end) < 0.005]
    digits = 2 if not near else 3 if min(near) >= 0.0005 else 5
    return f"{number(figure.low, digits)} to {number(figure.high, digits)}"


def _interval(figure: Figure) -> str:
    return f"95% interval {ends(figure)}"


def _percents(figure: Figure) -> str:
    return f"95% interval {percent(figure.low or 0.0)} to {percent(figure.high or 0.0)}"


def percent(share: float) -> str:
    """Return a share as whole percents."""
    return f"{100 * share:.0f}%"


def headline(agreement: Agreement) -> str:
    """Return the name of the figure by which a metric is judged."""
    return "kappa_quadratic" if agreement.scale else "kappa"


def use(agreement: Agreement | None, *, writes: bool = False) -> Use:
    """Say whether the figures speak for using the judge, by the first rules of `RULES`.

    Args:
        agreement: The figures; None if there are no human labels.
        writes: Whether the judge answers with text, which no labels can be compared with.
    """
    if writes:
        return Use(
            "not known",
            "It answers with text, and no figure here says whether a text is right. Let people "
            "read some hundred of the texts beside their rows.",
        )
    if agreement is None:
        return Use(
            "not known",
            "No human labels were given for this metric, so nothing here says whether its verdicts "
            "are right. Let people label a few hundred of the rows, and compare.",
        )
    kappa = agreement.figures[headline(agreement)]
    if kappa.value is not None and (constant := _constant(agreement)):
        return Use("no better than chance", f"No: {constant[0][0].lower()}{constant[0][1:]}")
    if kappa.value is None:
        return Use("not known", f"It cannot be told whether it agrees with people: {kappa.reason}.")
    if kappa.low is None or kappa.high is None:
        return _without_interval(agreement, kappa.value, kappa.reason)
    kind = "quadratically weighted kappa" if agreement.scale else "kappa"
    said = f"{kind} {number(kappa.value)}, {_interval(kappa)}, {_answered(agreement)} rows"
    if kappa.high < 0:
        return Use(
            "no better than chance",
            f"No: it agrees with people less often than chance would ({said}). Check that its "
            "answers mean what people's labels mean.",
        )
    if kappa.low <= 0:
        return Use(
            "no better than chance",
            f"Not on this evidence: it agrees with people no better than chance ({said}).",
        )
    return _better(agreement, said)


def _without_interval(agreement: Agreement, kappa: float, reason: str | None) -> Use:
    rows = _answered(agreement)
    if kappa < 1:
        return Use(
            "not known",
            f"It cannot be told whether it agrees with people better than chance: kappa is "
            f"{number(kappa)} on {rows} rows, and has no interval ({reason}).",
        )
    bound = min(1.0, 3 / rows)
    given = [sum(row) / rows for row in agreement.confusion]
    said = (
        f"judge and people say the same of all {rows} rows, which leaves room for up to "
        f"{percent(bound)} of rows on which they would not"
    )
    if bound < 1 - sum(share**2 for share in given):
        return Use("better than chance", f"It agrees with people better than chance: {said}.")
    return Use("not known", f"Too few rows to tell: {said}.")


def _better(agreement: Agreement, said: str) -> Use:
    name, people = headline(agreement), agreement.ceiling
    judge = people and people.judge.get(name)
    others = people and people.humans.get(name)
    if people is None or not judge or not others or judge.value is None or others.value is None:
        differ = agreement.figures["accuracy"]
        often = "" if differ.value is None else f" {_differ(differ)}"
        why = "each row has one rater" if people is None else "raters cannot be compared"
        return Use(
            "better than chance",
            f"It agrees with people better than chance ({said}).{often} How far people agree among "
            f"themselves is not known, for {why}; whether this is enough depends on what hangs on "
            "a verdict.",
        )
    if others.low is None or others.high is None:
        return Use(
            "better than chance",
            f"It agrees with people better than chance ({said}). A single person has kappa "
            f"{number(others.value)} with the other raters, without an interval "
            f"({others.reason}), so the two are not compared.",
        )
    both = (
        f"against the same raters, a single person has kappa {number(others.value)} "
        f"({_interval(others)}), the judge {number(judge.value)}"
        + ("" if judge.low is None else f" ({_interval(judge)})")
    )
    if others.low <= 0:
        return Use(
            "not known",
            f"People do not agree among themselves better than chance on these rows, so they "
            f"cannot tell a good judge from a bad one: {both}.",
        )
    if judge.value < others.low:
        return Use(
            "below people",
            f"It agrees with people better than chance ({said}), but less than they agree with one "
            f"another: {both}.",
        )
    return Use(
        "better than chance",
        f"It agrees with people better than chance ({said}), and these rows do not show it to be "
        f"below a single person: {both}.",
    )


def _differ(accuracy: Figure) -> str:
    value = 1 - (accuracy.value or 0.0)
    if accuracy.low is None or accuracy.high is None:
        return f"It differs from people on {percent(value)} of rows."
    low, high = percent(1 - accuracy.high), percent(1 - accuracy.low)
    return f"It differs from people on {percent(value)} of rows (95% interval {low} to {high})."


def faults(agreement: Agreement, bins: Sequence[Bin]) -> list[str]:
    """Say in sentences what the judge gets wrong, by the rules of `RULES`.

    Args:
        agreement: The figures.
        bins: The compared rows by confidence.
    """
    if not _answered(agreement):
        return [*_failed(agreement)]
    parts = [_failed(agreement), _constant(agreement), _majority(agreement)]
    parts += [_shift(agreement) if agreement.scale else _shares(agreement)]
    parts += [_mistake(agreement), _confidence(agreement, bins), _ranking(agreement)]
    return [sentence for sentences in parts for sentence in sentences]


def _answered(agreement: Agreement) -> int:
    return sum(map(sum, agreement.confusion))


def _named(label: str) -> str:
    shown = label if len(label) <= _NAMED else label[: _NAMED - 1] + "…"
    return f"“{shown}”"


def _failed(agreement: Agreement) -> list[str]:
    failed = agreement.rows - _answered(agreement)
    whole = agreement.figures["accuracy_failures_wrong"]
    if not failed or whole.value is None:
        return []
    return [
        f"{failed} of {agreement.rows} labelled rows have no verdict. The other figures leave them "
        f"out; with these taken as wrong, accuracy is {percent(whole.value)}."
    ]


def _constant(agreement: Agreement) -> list[str]:
    columns = [sum(column) for column in zip(*agreement.confusion, strict=True)]
    if max(columns) < sum(columns):
        return []
    label = agreement.labels[columns.index(max(columns))]
    return [f"It gives every labelled row the same answer, {_named(label)}, whatever the row says."]


def _majority(agreement: Agreement) -> list[str]:
    given = [sum(row) for row in agreement.confusion]
    most, accuracy = max(given), agreement.figures["accuracy"]
    share = most / sum(given)
    if accuracy.value is None or share == 1:
        return []
    label = _named(agreement.labels[given.index(most)])
    always = f"answering {label} every time would be right on {percent(share)}"
    if accuracy.low is not None and accuracy.low > share:
        return []
    if accuracy.value <= share:
        return [f"It is right on {percent(accuracy.value)} of rows; {always}."]
    return [
        f"It is right on {percent(accuracy.value)} of rows, which is not shown to be more than a "
        f"constant answer: {always}."
    ]


def _shares(agreement: Agreement) -> list[str]:
    given = [sum(row) for row in agreement.confusion]
    said = [sum(column) for column in zip(*agreement.confusion, strict=True)]
    rows = sum(given)
    if max(said) == rows:
        return []
    place = max(range(len(given)), key=lambda at: abs(said[at] - given[at]))
    if abs(said[place] - given[place]) < rows / 10:
        return []
    word = "too often" if said[place] > given[place] else "too seldom"
    return [
        f"It answers {_named(agreement.labels[place])} {word}: on {said[place]} of {rows} rows, "
        f"where people do on {given[place]}."
    ]


def _shift(agreement: Agreement) -> list[str]:
    grades = [float(label) for label in agreement.labels]
    cells = [
        (judge - human, rows)
        for human, row in zip(grades, agreement.confusion, strict=True)
        for judge, rows in zip(grades, row, strict=True)
    ]
    rows = sum(number for _, number in cells)
    mean = sum(apart * number for apart, number in cells) / rows
    variance = sum((apart - mean) ** 2 * number for apart, number in cells) / max(1, rows - 1)
    half = 1.96 * (variance / rows) ** 0.5
    if rows < 2 or abs(mean) <= half:
        return []
    word = "higher" if mean > 0 else "lower"
    return [
        f"Its grades are {word} than people's, by {number(abs(mean))} steps on average "
        f"(95% interval {number(abs(mean) - half)} to {number(abs(mean) + half)})."
    ]


def _mistake(agreement: Agreement) -> list[str]:
    labels = range(len(agreement.labels))
    wrong = [(agreement.confusion[a][b], a, b) for a in labels for b in labels if a != b]
    rows, human, judge = max(wrong, key=lambda each: each[0], default=(0, 0, 0))
    if not rows:
        return []
    return [
        f"Its most frequent mistake: where people say {_named(agreement.labels[human])}, it says "
        # A word stands between label and number, or a label from right to left would turn both.
        f"{_named(agreement.labels[judge])}, on {rows} of {sum(agreement.confusion[human])} such "
        "rows."
    ]


def _confidence(agreement: Agreement, bins: Sequence[Bin]) -> list[str]:
    rows, accuracy = sum(each.rows for each in bins), agreement.figures["accuracy"]
    if not rows or accuracy.value is None or accuracy.low is None or accuracy.high is None:
        return []
    mean = sum(each.rows * (each.confidence or 0.0) for each in bins) / rows
    said = f"its confidence is {percent(mean)} on average, its accuracy {percent(accuracy.value)}"
    if mean > accuracy.high:
        return [f"It is too sure of itself: {said} ({_percents(accuracy)})."]
    if mean < accuracy.low:
        return [f"It is less sure than it might be: {said} ({_percents(accuracy)})."]
    return []


def _ranking(agreement: Agreement) -> list[str]:
    auroc = agreement.figures.get("auroc")
    if auroc is None or auroc.value is None or auroc.low is None or auroc.high is None:
        return []
    said = f"AUROC {number(auroc.value)}, {_interval(auroc)}"
    kappa = agreement.figures[headline(agreement)]
    if auroc.high < 0.5:
        return [f"Its probabilities rank the rows the wrong way round ({said})."]
    if auroc.low <= 0.5:
        return [f"Its probabilities rank the rows no better than chance ({said})."]
    if kappa.low is None or kappa.low <= 0:
        return [
            f"Its probabilities rank the rows better than chance ({said}), although its answers do "
            "not agree with people's: another threshold than the largest probability may serve."
        ]
    return []
