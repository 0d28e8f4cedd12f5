"""The verdicts of a run, metric by metric and by id, with what each metric may answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from os import PathLike

from localjudge.answers import Scale, Value
from localjudge.errors import ConfigError, DataError
from localjudge.library import find_metric, shipped
from localjudge.records import Verdict
from localjudge.runs import read_verdicts


@dataclass(slots=True)
class Judged:
    """The verdicts of one metric in a run.

    Attributes:
        metric: Name of the metric.
        verdicts: The verdicts, by the ids of their rows without spaces at the ends.
        lists: Every list of answers that a row was judged by, in the declared order; empty where
            no probabilities were read.
    """

    metric: str
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    lists: dict[tuple[str, ...], None] = field(default_factory=dict)

    def add(self, verdict: Verdict) -> None:
        """Take one more verdict.

        Raises:
            DataError: its id is that of another but for spaces.
        """
        row_id = verdict.id.strip()
        if row_id in self.verdicts:
            raise DataError(f"two rows of the run have the id {row_id!r}, but for spaces")
        self.verdicts[row_id] = verdict
        if verdict.probabilities is not None:
            self.lists[tuple(verdict.probabilities)] = None

    def answers(self) -> tuple[tuple[str, ...], bool]:
        """Return the answers as text, in the metric's order, and whether they are a scale.

        They are those that the probabilities name. Where rows had lists of their own, they are all
        that occur. Without probabilities, they are those of the shipped metric of that name.

        Raises:
            ConfigError: the metric answers with text, or its answers are not known.
        """
        values = {verdict.value for verdict in self.verdicts.values()} - {None}
        if self.lists:
            listed = dict.fromkeys(answer for answers in self.lists for answer in answers)
            return tuple(listed), all(isinstance(value, int) for value in values)
        if self.metric in shipped():
            space = find_metric(self.metric).answers
            known: set[Value] = set(space.values)
            if space.values and values <= known:
                return tuple(map(str, space.values)), isinstance(space, Scale)
        if any(isinstance(v.value, str) and v.label is None for v in self.verdicts.values()):
            raise ConfigError(
                f"the metric {self.metric} answers with text, which has no agreement in figures"
            )
        raise ConfigError(
            f"the run does not say what the metric {self.metric} may answer",
            hint="judge with direct decoding, which keeps the probability of every answer",
        )


def read_judged(folder: str | PathLike[str]) -> dict[str, Judged]:
    """Return the verdicts of a finished run, by metric.

    Raises:
        RunError: the folder holds no finished run, or its file is damaged.
        DataError: two ids are the same but for spaces.
    """
    judged: dict[str, Judged] = {}
    for verdict in read_verdicts(folder):
        judged.setdefault(verdict.metric, Judged(verdict.metric)).add(verdict)
    return judged
