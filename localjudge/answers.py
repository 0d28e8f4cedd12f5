"""Answer spaces: what a metric may answer, and the exact JSON in which it does."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from localjudge.errors import MetricError
from localjudge.labels import Label, check_labels, folded
from localjudge.scales import check_meanings, check_step

Kind = Literal["classify", "score", "text"]
Value = str | int

LABEL = "<label>"  # where a prompt shows an answer whose labels come with each row
# What stands between single spaces in a text: no stop, and nothing that JSON would escape.
_WORD = r'[^\s"\\.!?\x00-\x1f\x7f]+'


def document(value: Value, explanation: str | None = None) -> str:
    """Return the whole JSON answer for `value`, in the one spelling that localjudge uses."""
    explained = {} if explanation is None else {"explanation": explanation}
    return json.dumps(explained | {"output": value}, ensure_ascii=False)


def pattern_of(texts: Sequence[str]) -> str:
    """Return a regular expression that matches exactly `texts`."""
    return "(" + "|".join(re.escape(text) for text in texts) + ")"


class _Closed:
    """What `Labels` and `Scale` share: a finite list of answers, each one JSON document."""

    @property
    def values(self) -> tuple[Value, ...]:
        """The answers, in the order in which they are shown."""
        raise NotImplementedError

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The number that each answer counts as, in the order of `values`."""
        raise NotImplementedError

    @property
    def documents(self) -> tuple[str, ...]:
        """The JSON document of each answer, in the order of `values`."""
        return tuple(document(value) for value in self.values)

    @property
    def endings(self) -> tuple[str, ...]:
        """What each document ends with behind the text of an explanation."""
        return tuple(f'", {text[1:]}' for text in self.documents)

    @property
    def pattern(self) -> str:
        """A regular expression that matches exactly `documents`, for constrained decoding."""
        return pattern_of(self.documents)

    def parse(self, text: str) -> Value:
        """Read one answer strictly: a JSON document that equals an allowed one.

        Raises:
            ValueError: `text` is anything else. There is no rescue of words found inside it.
        """
        try:
            read = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a JSON document: {error}") from None
        if isinstance(read, dict) and read.keys() == {"output"}:
            for value in self.values:
                # The type counts too: in Python True == 1 and 4.0 == 4, in an answer they are not.
                if type(read["output"]) is type(value) and read["output"] == value:
                    return value
        raise ValueError("the JSON document is not one of the allowed answers")

    def score(self, value: Value) -> float | None:
        """Return the number that `value` counts as, or None where none was declared."""
        return self.scores[self.values.index(value)]

    def expected_score(self, probabilities: Sequence[float]) -> float | None:
        """Return the mean score under `probabilities`, or None unless every answer has a score."""
        scores = [score for score in self.scores if score is not None]
        if len(scores) < len(self.values):
            return None
        return math.fsum(p * s for p, s in zip(probabilities, scores, strict=True))


@dataclass(frozen=True, slots=True)
class Labels(_Closed):
    """A closed list of labels.

    Raises:
        MetricError: fewer than two labels; a label that is not text, is blank, has spaces at its
            ends, holds control characters, or cannot be told from another by a reader.
    """

    labels: tuple[Label, ...]
    kind: ClassVar[Kind] = "classify"

    def __post_init__(self) -> None:
        if len(self.labels) < 2:
            raise MetricError(
                f"{len(self.labels)} label(s) declared, which leaves nothing to decide",
                field="answers.labels",
                hint="declare at least two labels",
            )
        check_labels(self.labels)

    @classmethod
    def of(cls, labels: Mapping[str, str | Label] | Sequence[str]) -> Labels:
        """Build from `{label: meaning}`, `{label: Label}` or a plain list of labels."""
        return cls(cls.entries(labels))

    @staticmethod
    def entries(labels: Mapping[str, str | Label] | Sequence[str]) -> tuple[Label, ...]:
        """Return what `of` would build from, unchecked.

        Raises:
            MetricError: it is neither a mapping nor a list.
        """
        if isinstance(labels, str) or not isinstance(labels, Iterable):
            raise MetricError(
                f"{labels!r} is of type {type(labels).__name__}, not labels",
                field="answers.labels",
                hint="give a mapping of label to meaning, or a list of labels",
            )
        if not isinstance(labels, Mapping):
            return tuple(Label(name) for name in labels)
        return tuple(
            entry if isinstance(entry, Label) else Label(name, entry)
            for name, entry in labels.items()
        )

    @property
    def values(self) -> tuple[str, ...]:
        """The labels, in the order in which they are shown."""
        return tuple(label.name for label in self.labels)

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The number that each label counts as."""
        return tuple(label.score for label in self.labels)

    @property
    def meanings(self) -> tuple[str, ...]:
        """What each label means."""
        return tuple(label.meaning for label in self.labels)


@dataclass(frozen=True, slots=True)
class Scale(_Closed):
    """Every integer from `low` to `high`, with the meaning of those that have one.

    Raises:
        MetricError: a step is not an integer from -9999 to 9999, `low` is not below `high`, or a
            meaning is not text or stands outside the scale.
    """

    low: int = 1
    high: int = 5
    meaning: tuple[tuple[int, str], ...] = ()
    kind: ClassVar[Kind] = "score"

    def __post_init__(self) -> None:
        for bound in (self.low, self.high):
            check_step(bound)
        if self.low >= self.high:
            raise MetricError(
                f"a scale from {self.low} to {self.high} leaves nothing to decide",
                field="answers.scale",
                hint="the low end must be below the high end",
            )
        for step, meaning in self.meaning:
            check_step(step)
            if not isinstance(meaning, str):
                raise MetricError(f"{meaning!r} is not text", field=f"answers.scale.{step}")
            if not self.low <= step <= self.high:
                raise MetricError(
                    f"{step!r} is not on the scale from {self.low} to {self.high}",
                    field="answers.scale",
                )

    @classmethod
    def of(cls, meanings: Mapping[int, str]) -> Scale:
        """Build from `{1: meaning, ...}`; the ends are the smallest and the largest key.

        Raises:
            MetricError: it is no mapping or an empty one, or a step between the ends is missing.
        """
        check_meanings(meanings)
        return cls(min(meanings), max(meanings), tuple(sorted(meanings.items())))

    @property
    def values(self) -> tuple[int, ...]:
        """The steps, from low to high."""
        return tuple(range(self.low, self.high + 1))

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The steps as numbers."""
        return tuple(float(value) for value in self.values)

    @property
    def meanings(self) -> tuple[str, ...]:
        """What each step means; empty where nothing was declared."""
        given = dict(self.meaning)
        return tuple(given.get(value, "") for value in self.values)


@dataclass(frozen=True, slots=True)
class Text:
    """Short text within limits, which the pattern for constrained decoding enforces.

    A sentence ends with `.`, `!` or `?`, and these stand nowhere else. A word is what stands
    between single spaces. In more than one sentence, each has at most its equal share of the words.

    Attributes:
        begins: The words with which the text begins.
        max_sentences: The most sentences.
        max_words: The most words in all, those of `begins` included.

    Raises:
        MetricError: the limits leave no room for a text.
    """

    begins: str = ""
    max_sentences: int = 1
    max_words: int = 30
    kind: ClassVar[Kind] = "text"

    def __post_init__(self) -> None:
        if self.max_sentences < 1 or self.share <= len(self.begins.split()):
            raise MetricError(
                f"{self.max_sentences} sentence(s) and {self.max_words} words leave no room",
                field="answers.text",
                hint="allow more words for each sentence than `begins` has",
            )
        if not re.fullmatch(f"(?:{_WORD}(?: {_WORD})*)?", self.begins):
            raise MetricError(
                f"{self.begins!r} is not a plain beginning of a sentence",
                field="answers.text.begins",
                hint="use words with single spaces, without quotes and stops",
            )

    @property
    def share(self) -> int:
        """The most words of a sentence, where there is more than one."""
        return self.max_words // self.max_sentences

    @property
    def opening(self) -> str:
        """What every answer begins with."""
        return document(self.begins)[:-2]

    @property
    def pattern(self) -> str:
        """What may follow the opening, up to and with the closing quotation mark."""
        alone = self._first_sentence(self.max_words)
        if self.max_sentences == 1:
            return f'{alone}"'
        further = f"(?: {_WORD}){{1,{self.share}}}[.!?]"
        first = self._first_sentence(self.share)
        return f'(?:{alone}|{first}(?:{further}){{1,{self.max_sentences - 1}}})"'

    def _first_sentence(self, most: int) -> str:
        begun = len(self.begins.split())
        if begun:
            return f"(?: {_WORD}){{1,{most - begun}}}[.!?]"
        return f"{_WORD}(?: {_WORD}){{0,{most - 1}}}[.!?]"

    @property
    def documents(self) -> tuple[str, ...]:
        """One document that stands for all, as the prompt shows it."""
        return (document(f"{self.begins} ...".strip()),)

    @property
    def values(self) -> tuple[Value, ...]:
        """None can be listed."""
        return ()

    def parse(self, text: str) -> str:
        """Read one answer strictly.

        Raises:
            ValueError: it is no JSON document of the one form, or beyond the limits.
        """
        if not re.fullmatch(re.escape(self.opening) + self.pattern + r"\}", text):
            raise ValueError("the text is not within the declared limits")
        value: str = json.loads(text)["output"]
        return value

    @property
    def scores(self) -> tuple[float | None, ...]:
        """Text has none."""
        return ()

    def score(self, value: Value) -> None:
        """Return None: text has no score."""

    def expected_score(self, probabilities: Sequence[float]) -> None:
        """Return None: text has no score."""


@dataclass(frozen=True, slots=True)
class Open:
    """Labels that come with the run, or with each row, and some that are always among them.

    Attributes:
        column: The column that holds each row's list of labels.
        always: Labels that stand at the end of every list.
    """

    column: str
    always: tuple[Label, ...] = ()
    kind: ClassVar[Kind] = "classify"

    def close(self, labels: Mapping[str, str | Label] | Sequence[str]) -> Labels:
        """Return the answer space for one list of labels.

        Raises:
            MetricError: the labels cannot be told apart; see `Labels`.
        """
        given = Labels.entries(labels)
        check_labels(given)
        standing = {folded(label.name): label for label in self.always}
        entries = []
        for label in given:
            # A list may name a standing label itself, in any place; the bare name keeps its sense.
            same = standing.pop(folded(label.name), None)
            bare = label == Label(label.name)
            entries.append(replace(same, name=label.name) if same and bare else label)
        return Labels((*entries, *standing.values()))

    @property
    def documents(self) -> tuple[str, ...]:
        """One document that stands for all, as the prompt shows it."""
        return (document(LABEL),)

    @property
    def values(self) -> tuple[Value, ...]:
        """Those that are in every list."""
        return tuple(label.name for label in self.always)

    @property
    def scores(self) -> tuple[float | None, ...]:
        """Their scores."""
        return tuple(label.score for label in self.always)

    @property
    def meanings(self) -> tuple[str, ...]:
        """What they mean."""
        return tuple(label.meaning for label in self.always)


Closed = Labels | Scale
AnswerSpace = Labels | Scale | Text | Open
