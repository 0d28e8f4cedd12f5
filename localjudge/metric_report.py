"""What a report says of one metric: counts, and the comparison with human labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from localjudge.agreement import Agreement, Figures
from localjudge.charts import judged_grade
from localjudge.disagreements import Beside, Bin, by_confidence
from localjudge.findings import Use, faults, headline, use
from localjudge.judged import Judged
from localjudge.records import Status, Verdict
from localjudge.statistics.figures import Figure

SHOWN = 20  # rows in a list
_LABELS = 40  # answers in a table
_BINS = 10


@dataclass(frozen=True, slots=True)
class Answer:
    """How often one answer was given, by the judge and, in the compared rows, by people."""

    label: str
    rows: int
    share: float
    people: int | None


@dataclass(frozen=True, slots=True)
class Texts:
    """The answers of a metric that answers with text.

    Attributes:
        words: The fewest words, the median and the most.
        first: Id and text of the first ones.
    """

    words: tuple[int, float, int]
    first: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A row on which judge and people differ.

    Attributes:
        row: The row, with verdict and human label.
        texts: What the judge read of it, by input; empty if the data were not given.
    """

    row: Beside
    texts: Mapping[str, str]

    @property
    def raters(self) -> int:
        """How many people labelled it."""
        return sum(self.row.given.values())

    @property
    def probabilities(self) -> list[tuple[str, float]]:
        """The most probable answers, and the people's if it is not among them."""
        each = sorted((self.row.verdict.probabilities or {}).items(), key=lambda pair: -pair[1])
        return each[:4] + [pair for pair in each[4:] if pair[0] == self.row.human]


@dataclass(frozen=True, slots=True)
class People:
    """A metric beside human labels.

    Attributes:
        agreement: The figures.
        rows: The compared rows.
        differing: On how many of them judge and people give different answers.
        shown: The plainest of these.
    """

    agreement: Agreement
    rows: Sequence[Beside]
    differing: int
    shown: Sequence[Shown]

    @property
    def bins(self) -> list[Bin]:
        """The compared rows by confidence."""
        return by_confidence(self.rows, _BINS)

    @property
    def confident(self) -> bool:
        """Whether any compared row has a confidence."""
        return any(each.rows for each in self.bins)

    @property
    def faults(self) -> list[str]:
        """What the judge gets wrong, in sentences."""
        return faults(self.agreement, self.bins)

    @property
    def kappas(self) -> dict[str, Figure]:
        """Kappa of the judge; and where rows have several raters, of a person and of both."""
        name, ceiling = headline(self.agreement), self.agreement.ceiling
        found = {"judge against people": self.agreement.figures[name]}
        if ceiling is not None and name in ceiling.humans:
            found["one person against others"] = ceiling.humans[name]
            found["judge against these others"] = ceiling.judge[name]
        return found

    @property
    def mistakes(self) -> list[tuple[int, str, str]]:
        """The most frequent pairs of different answers: rows, people's, judge's."""
        labels, table = self.agreement.labels, self.agreement.confusion
        wrong = [
            (rows, labels[human], labels[judge])
            for human, row in enumerate(table)
            for judge, rows in enumerate(row)
            if human != judge and rows
        ]
        return sorted(wrong, key=lambda mistake: -mistake[0])[:SHOWN]

    @property
    def by_grade(self) -> list[tuple[str, list[float]]]:
        """The judge's grades for each grade of people."""
        grades: dict[str, list[float]] = {label: [] for label in self.agreement.labels}
        for row in self.rows:
            if (grade := judged_grade(row)) is not None:
                grades[row.human].append(grade)
        return [(label, each) for label, each in grades.items() if each]

    @property
    def label_figures(self) -> list[str]:
        """The names of the figures that a label has."""
        return list(dict.fromkeys(name for of in self.agreement.by_label.values() for name in of))

    @property
    def by_label(self) -> list[tuple[str, int, int, Figures]]:
        """Label, rows by people and by the judge, and figures; the most frequent if many."""
        said = [sum(column) for column in zip(*self.agreement.confusion, strict=True)]
        found = [
            (label, sum(row), column, self.agreement.by_label[label])
            for label, row, column in zip(
                self.agreement.labels, self.agreement.confusion, said, strict=True
            )
        ]
        if len(found) > _LABELS:
            found.sort(key=lambda each: -each[1])
        return found[:_LABELS]


@dataclass(frozen=True, slots=True)
class MetricReport:
    """What a report says of one metric.

    Attributes:
        metric: Its name.
        rows: Number of verdicts, failed ones included.
        statuses: How many verdicts have each status.
        answers: How often each answer was given; the most frequent if there are many.
        answers_left_out: How many answers are not listed.
        texts: Its answers, if they are text.
        confidence: How many verdicts have a confidence in each tenth from 0 to 1; None if none has.
        truncated: How many verdicts come with a text that was cut at its budget.
        failed: The first rows without a verdict, of each status as many.
        people: The comparison with human labels; None if there are none for this metric.
    """

    metric: str
    rows: int
    statuses: Mapping[str, int]
    answers: Sequence[Answer]
    answers_left_out: int
    texts: Texts | None
    confidence: Sequence[int] | None
    truncated: int
    failed: Sequence[Verdict]
    people: People | None

    @classmethod
    def of(cls, judged: Judged, people: People | None) -> MetricReport:
        """Count the verdicts of a metric."""
        verdicts = list(judged.verdicts.values())
        answered = [verdict for verdict in verdicts if verdict.status is Status.OK]
        written = [each for each in answered if isinstance(each.value, str) and not each.label]
        answers = [] if written else _answers(judged, answered, people)
        sure = [verdict.confidence for verdict in answered if verdict.confidence is not None]
        tenths = Counter(min(int(confidence * _BINS), _BINS - 1) for confidence in sure)
        return cls(
            metric=judged.metric,
            rows=len(verdicts),
            statuses=dict(Counter(str(verdict.status) for verdict in verdicts).most_common()),
            answers=answers[:_LABELS],
            answers_left_out=len(answers[_LABELS:]),
            texts=_written(written) if written else None,
            confidence=[tenths[place] for place in range(_BINS)] if sure else None,
            truncated=sum(verdict.truncated for verdict in verdicts),
            failed=_failed(verdicts),
            people=people,
        )

    @property
    def use(self) -> Use:
        """Whether the figures speak for using it."""
        agreement = None if self.people is None else self.people.agreement
        return use(agreement, writes=self.texts is not None)

    @property
    def answered(self) -> int:
        """How many rows have a verdict."""
        return self.statuses.get(Status.OK, 0)

    @property
    def failed_rows(self) -> int:
        """How many rows have none."""
        return self.rows - self.answered


def _answers(judged: Judged, answered: Sequence[Verdict], people: People | None) -> list[Answer]:
    """Return the answers in the metric's order; the most frequent first if there are many."""
    given = Counter(str(verdict.value) for verdict in answered)
    by_people = Counter(row.human for row in people.rows) if people else None
    declared = (label for labels in judged.lists for label in labels)
    labels = list(dict.fromkeys((*declared, *given)))
    if len(labels) > _LABELS:
        labels.sort(key=lambda label: -given[label])
    return [
        Answer(
            label,
            given[label],
            given[label] / max(1, len(answered)),
            None if by_people is None else by_people[label],
        )
        for label in labels
    ]


def _failed(verdicts: Sequence[Verdict]) -> list[Verdict]:
    kinds: dict[Status, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.status is not Status.OK:
            kinds.setdefault(verdict.status, []).append(verdict)
    # A frequent reason must not hide a rare one.
    return [each for of_kind in kinds.values() for each in of_kind[: SHOWN // len(kinds)]]


def _written(verdicts: Sequence[Verdict]) -> Texts:
    words = [len(str(verdict.value).split()) for verdict in verdicts]
    first = tuple((verdict.id, str(verdict.value)) for verdict in verdicts[:SHOWN])
    return Texts((min(words), median(words), max(words)), first)
