"""Metrics made ready for one model: the ways of asking, and what each row asks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import factorial
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from localjudge import explanations
from localjudge.answers import Closed, Labels, Open, Text, Value, pattern_of
from localjudge.encoding import PromptEncoder, PromptFrame
from localjudge.errors import ConfigError, DataError, MetricError, TokenizerError
from localjudge.messages import Messages
from localjudge.metrics import Metric
from localjudge.outcomes import Refusal
from localjudge.paths import lookup
from localjudge.patterns import check_pattern, check_text
from localjudge.records import Row, Status
from localjudge.templates import CHOICES
from localjudge.tree import AnswerTree
from localjudge.truncation import Part

if TYPE_CHECKING:
    from localjudge.heads import Head

_KEPT_LISTS = 4096  # of rows' own labels, with their trees
_LONGEST_LIST = 20_000  # characters; beyond it building the tree takes seconds
_TOKENS_A_WORD = 4
_NOTHING = AnswerTree(size=0, dropped=0, prefix=(), branches=())


@dataclass(frozen=True, eq=False, slots=True)
class Variant:
    """One way of asking a metric.

    Attributes:
        messages: The metric as messages; its labels may stand in another order.
        answers: Its answers, in that order.
        frame: What stands around a row in the prompt.
        opening: The fixed beginning of what is written: a text or an explanation; or nothing.
        tree: The answers as tokens, behind the prompt or the explanation; for text, nothing.
        values: The answers in their declared order.
        places: For each of `values`, the place among `answers` of the one that stands for it.
        swapped: Whether the two inputs of a pair stand in the other order.
    """

    messages: Messages
    answers: Closed | Text
    frame: PromptFrame
    opening: AnswerTree
    tree: AnswerTree
    values: tuple[Value, ...]
    places: tuple[int, ...]
    swapped: bool = False

    @property
    def pattern(self) -> str:
        """The regular expression for an answer that is written, where the prompt leaves off."""
        if isinstance(self.answers, Text):
            return self.answers.pattern
        return pattern_of(self._documents)

    @property
    def answer_tokens(self) -> int:
        """The most tokens that an answer may take, behind its opening.

        Under a constraint a model may spell an answer in single bytes, so for a list of answers
        the bytes of the longest are the bound. A text gets four tokens for each word.
        """
        if isinstance(self.answers, Text):
            return _TOKENS_A_WORD * self.answers.max_words
        return 1 + max(len(text.encode()) for text in self._documents)

    @property
    def _documents(self) -> tuple[str, ...]:
        if self.messages.explain and not isinstance(self.answers, Text):
            return self.answers.endings
        return self.answers.documents

    def parse(self, written: str) -> Value:
        """Read strictly what was written under the pattern, and return what it stands for.

        Raises:
            ValueError: it is no allowed answer.
        """
        if isinstance(self.answers, Text):
            return self.answers.parse(f"{self.answers.opening}{written}}}")
        if self.messages.explain:
            before, comma, rest = written.partition(", ")
            if before + comma != '", ':
                raise ValueError("the answer does not go on behind the explanation")
            written = "{" + rest
        place = self.answers.values.index(self.answers.parse(written))
        return self.values[self.places.index(place)]


class Question(NamedTuple):
    """What is asked about a row: equal questions are asked once."""

    variant: Variant
    body: str


def by_frame(questions: Iterable[Question]) -> Iterator[list[Question]]:
    """Yield together the questions whose prompts begin alike, sorted: neighbours share most."""
    frames: dict[int, list[Question]] = {}
    for question in questions:
        frames.setdefault(id(question.variant.frame), []).append(question)
    for group in sorted(frames.values(), key=lambda group: group[0].variant.frame.head):
        yield sorted(group, key=lambda question: question.body)


def check_asking(metric: Metric, *, explain: bool, orders: int = 1) -> None:
    """Check that a metric can be asked so; see `Task`.

    Raises:
        ConfigError: it answers with text and is to be explained, or it is to be asked in several
            orders of its labels and has no list of them, or not so many orders.
    """
    if explain and isinstance(metric.answers, Text):
        raise ConfigError(
            f"the metric {metric.name} answers with text, which is not explained",
            field="explain",
            hint="run it without explanations, apart from the other metrics",
        )
    if orders > 1 and not isinstance(metric.answers, Labels):
        raise ConfigError(
            f"the metric {metric.name} has no list of labels that could be put in orders",
            field="permute_labels",
            hint="ask it in one order, apart from the other metrics",
        )
    most = factorial(len(metric.answers.values))
    if orders > 1 and orders > most:
        raise ConfigError(
            f"the {len(metric.answers.values)} labels of the metric {metric.name} have {most} "
            f"orders, not {orders}",
            field="permute_labels",
            hint=f"ask in at most {most} orders, or judge by this metric apart from the others",
        )


class Task:
    """One metric made ready for one model.

    Args:
        encoder: The model's prompt encoder.
        metric: The metric.
        mapping: Input to column or path, where it is not the metric's default.
        explain: Whether an explanation is written first.
        orders: In how many orders of the labels each row is asked.
        truncate: Inputs that may be cut where a prompt is too long, and which part of each.
        head: The fitted head that decides, in place of the model's own probabilities.

    Raises:
        ConfigError: the metric cannot be asked so; see `check_asking`.
        TokenizerError: the model's tokenizer cannot carry the answers, or outlines_core does not
            read their pattern as declared.
    """

    def __init__(
        self,
        encoder: PromptEncoder,
        metric: Metric,
        mapping: Mapping[str, str] | None = None,
        *,
        explain: bool = False,
        orders: int = 1,
        truncate: Mapping[str, Part] | None = None,
        head: Head | None = None,
    ) -> None:
        check_asking(metric, explain=explain, orders=orders)
        if explain:
            check_pattern(explanations.PATTERN, explanations.ALLOWED, explanations.NOT_ALLOWED)
        if isinstance(metric.answers, Text):
            check_text(metric.answers)
        self.metric = metric
        self.columns = metric.columns(mapping)
        self.explain = explain
        self.head = head
        self.truncate = {k: v for k, v in (truncate or {}).items() if k in metric.inputs}
        self._encoder = encoder
        self._messages = Messages(metric, explain)
        self._frames: dict[tuple[str, str], PromptFrame] = {}
        self._by_labels: dict[tuple[str, ...], Variant | Refusal] = {}
        self._variants = [
            self._variant(Messages(asked, explain), asked.answers, swapped=swapped)
            for swapped in ((False, True) if metric.pair else (False,))
            for asked in _in_orders(metric, orders)
            if not isinstance(asked.answers, Open)  # those are closed row by row
        ]

    def questions(
        self, row: Row, texts: Mapping[str, str] | None = None
    ) -> list[Question] | Refusal:
        """Return what to ask about a row, one question for each variant.

        Args:
            row: The row.
            texts: The text of each input, where it is not the row's own but cut.
        """
        values, missing = self.metric.values(row.fields, self.columns)
        if missing:
            return Refusal(Status.MISSING_INPUT, f"missing or blank: {', '.join(missing)}")
        values |= texts or {}
        if isinstance(self.metric.answers, Open):
            return self._open_question(self.metric.answers, row, values)
        return [
            Question(v, v.messages.body(self._swapped(values) if v.swapped else values))
            for v in self._variants
        ]

    def _swapped(self, values: Mapping[str, str]) -> Mapping[str, str]:
        """Return the values with those of the pair's two inputs exchanged."""
        other = _exchange(self.metric.pair.inputs if self.metric.pair else ())
        return {other.get(name, name): value for name, value in values.items()}

    def _open_question(
        self, answers: Open, row: Row, values: dict[str, str]
    ) -> list[Question] | Refusal:
        column = self.columns[CHOICES]
        given = lookup(row.fields, column)
        labels = _label_list(given)
        if labels is None:
            problem = "missing or blank:" if given is None else "no list of labels:"
            return Refusal(Status.MISSING_INPUT, f"{problem} {column}")
        if labels not in self._by_labels:
            if len(self._by_labels) >= _KEPT_LISTS:
                self._by_labels.clear()
            self._by_labels[labels] = self._close(answers, labels)
        variant = self._by_labels[labels]
        if isinstance(variant, Refusal):
            return variant
        listed = "\n".join(map(str, variant.values))
        return [Question(variant, self._messages.body(values | {CHOICES: listed}))]

    def _close(self, answers: Open, labels: tuple[str, ...]) -> Variant | Refusal:
        """Return how to ask by one list of labels; a bad list costs only the rows that have it."""
        if sum(map(len, labels)) > _LONGEST_LIST:
            error = f"{self.columns[CHOICES]}: more than {_LONGEST_LIST} characters of labels"
            return Refusal(Status.INPUT_TOO_LONG, error)
        column = self.columns[CHOICES]
        try:
            # The labels stand with the row, so messages and frame are the same for all lists.
            return self._variant(self._messages, answers.close(labels))
        except MetricError as error:
            return Refusal(Status.MISSING_INPUT, f"{column}: {error.problem}")
        except TokenizerError as error:
            return Refusal(Status.ENGINE_ERROR, f"{column}: {error.problem}")

    def _variant(
        self, messages: Messages, answers: Closed | Text, *, swapped: bool = False
    ) -> Variant:
        declared = self.metric.answers
        values = answers.values if isinstance(declared, Open) else declared.values
        said = _exchange(self.metric.pair.labels if self.metric.pair and swapped else ())
        frame, content = self._frame(messages), self._encoder.content
        opening, tree = _NOTHING, _NOTHING
        if isinstance(answers, Text):
            opening = AnswerTree.build(content, [answers.opening], frame.context)
        elif self.explain:
            opening = AnswerTree.build(content, [explanations.OPENING], frame.context)
            tree = AnswerTree.build(content, answers.endings, "")
        else:
            tree = AnswerTree.build(content, answers.documents, frame.context)
        return Variant(
            messages=messages,
            answers=answers,
            frame=frame,
            opening=opening,
            tree=tree,
            values=values,
            places=tuple(answers.values.index(said.get(value, value)) for value in values),
            swapped=swapped,
        )

    def _frame(self, messages: Messages) -> PromptFrame:
        key = (messages.system, messages.user_head)
        if key not in self._frames:
            self._frames[key] = self._encoder.frame(*key)
        return self._frames[key]


def _exchange(two: Sequence[str]) -> dict[Value, str]:
    """Return the mapping of each of two names to the other."""
    return dict(zip(two, reversed(two), strict=True))


def _in_orders(metric: Metric, count: int) -> Iterator[Metric]:
    """Yield the metric with its labels in `count` different orders, the declared one first.

    The first is followed by its rotations, which bring every label to every place, and these by
    seeded random orders.
    """
    yield metric
    answers = metric.answers
    if not isinstance(answers, Labels):
        return
    places = range(len(answers.labels))
    orders = [(*places[start:], *places[:start]) for start in places]
    random = Random(0)
    while len(orders) < count:
        order = tuple(random.sample(places, len(places)))
        if order not in orders:
            orders.append(order)
    for order in orders[1:count]:
        yield replace(metric, answers=Labels(tuple(answers.labels[place] for place in order)))


def _label_list(value: object) -> tuple[str, ...] | None:
    """Read a row's own labels: a list of texts, or the same as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if not isinstance(value, list) or not all(isinstance(label, str) for label in value):
        return None
    return tuple(value) or None


def questions_of(task: Task, row: Row) -> list[Question] | Refusal:
    """Return what to ask about a row, or why nothing can be asked."""
    try:
        return task.questions(row)
    except DataError as error:
        return Refusal(Status.MISSING_INPUT, f"{error.field}: {error.problem}")
    except RecursionError:
        return Refusal(Status.MISSING_INPUT, "a value is nested too deeply")
