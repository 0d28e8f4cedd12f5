"""Metrics made ready for one model: the ways of asking, and what each row asks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from random import Random
from typing import NamedTuple

from localjudge.answers import EXPLANATION_OPENING, Closed, Labels, Open, Text, Value, pattern_of
from localjudge.encoding import PromptEncoder, PromptFrame
from localjudge.errors import ConfigError, MetricError
from localjudge.messages import Messages
from localjudge.metrics import Metric
from localjudge.outcomes import Refusal
from localjudge.paths import lookup
from localjudge.records import Row, Status
from localjudge.templates import CHOICES
from localjudge.tree import AnswerTree

_KEPT_LISTS = 4096  # trees of rows' own label lists
_TOKENS_A_WORD = 4


@dataclass(frozen=True, eq=False, slots=True)
class Variant:
    """One way of asking a metric.

    Attributes:
        messages: The metric as messages; its labels may stand in another order.
        answers: Its answers, in that order.
        frame: What stands around a row in the prompt.
        tree: The answers as tokens; None for text.
        opening: Ids of the fixed beginning of what is written: a text or an explanation.
        values: The answers in their declared order.
        order: For each of `values`, its place among this variant's answers.
        swapped: Whether the two inputs of a pair stand in the other order.
    """

    messages: Messages
    answers: Closed | Text
    frame: PromptFrame
    tree: AnswerTree | None
    opening: tuple[int, ...]
    values: tuple[Value, ...]
    order: tuple[int, ...]
    swapped: bool = False

    @property
    def pattern(self) -> str:
        """The regular expression for an answer that is written, where the prompt leaves off."""
        if self.messages.explain and not isinstance(self.answers, Text):
            return pattern_of(self.answers.endings)
        return self.answers.pattern

    @property
    def answer_tokens(self) -> int:
        """The most tokens that an answer may take, its opening included.

        Under a constraint a model may spell an answer in single bytes, so for a list of answers
        the bytes of the longest are the bound. A text gets four tokens for each word.
        """
        if isinstance(self.answers, Text):
            return len(self.opening) + _TOKENS_A_WORD * self.answers.max_words
        return len(self.opening) + 4 + max(len(text.encode()) for text in self.answers.documents)

    def answer_tree(self) -> AnswerTree:
        """Return the tree, which every answer but text has."""
        if self.tree is None:
            raise TypeError(f"the metric {self.messages.metric.name} answers with text")
        return self.tree


class Question(NamedTuple):
    """What is asked about a row: equal questions are asked once."""

    variant: Variant
    body: str


def check_asking(metric: Metric, *, explain: bool, orders: int = 1) -> None:
    """Check that a metric can be asked so; see `Task`.

    Raises:
        ConfigError: it answers with text and is to be explained, or it is to be asked in several
            orders of its labels and has no list of them.
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


class Task:
    """One metric made ready for one model.

    Args:
        encoder: The model's prompt encoder.
        metric: The metric.
        mapping: Input to column or path, where it is not the metric's default.
        explain: Whether an explanation is written first.
        orders: In how many orders of the labels each row is asked.

    Raises:
        ConfigError: the metric cannot be asked so.
        TokenizerError: the model's tokenizer cannot carry the answers.
    """

    def __init__(
        self,
        encoder: PromptEncoder,
        metric: Metric,
        mapping: Mapping[str, str] | None = None,
        *,
        explain: bool = False,
        orders: int = 1,
    ) -> None:
        check_asking(metric, explain=explain, orders=orders)
        self.metric = metric
        self.columns = metric.columns(mapping)
        self.explain = explain
        self.orders = orders
        self._encoder = encoder
        self._frames: dict[tuple[str, str], PromptFrame] = {}
        self._by_labels: dict[tuple[str, ...], Variant | MetricError] = {}
        self._variants: list[Variant] = []
        if not isinstance(metric.answers, Open):
            for swapped in (False, True) if metric.pair else (False,):
                for asked, order in _label_orders(metric, orders):
                    self._variants.append(self._variant(asked, order, swapped=swapped))

    def questions(self, row: Row) -> list[Question] | Refusal:
        """Return what to ask about a row, one question for each variant."""
        values, missing = self.metric.values(row.fields, self.columns)
        if missing:
            return Refusal(Status.MISSING_INPUT, f"missing or blank: {', '.join(missing)}")
        if isinstance(self.metric.answers, Open):
            return self._open_question(self.metric.answers, row, values)
        return [
            Question(variant, variant.messages.body(self._shown(values, variant)))
            for variant in self._variants
        ]

    def _shown(self, values: Mapping[str, str], variant: Variant) -> Mapping[str, str]:
        if not variant.swapped or self.metric.pair is None:
            return values
        first, second = self.metric.pair.inputs
        return {**values, first: values[second], second: values[first]}

    def _open_question(
        self, answers: Open, row: Row, values: dict[str, str]
    ) -> list[Question] | Refusal:
        given = lookup(row.fields, answers.column)
        labels = _label_list(given)
        if labels is None:
            problem = f"{answers.column} holds no list of labels"
            return Refusal(Status.MISSING_INPUT, problem)
        if labels not in self._by_labels:
            if len(self._by_labels) >= _KEPT_LISTS:
                self._by_labels.clear()
            try:
                closed = self.metric.with_labels(labels)
                self._by_labels[labels] = self._variant(closed, range(len(closed.answers.values)))
            except MetricError as error:
                self._by_labels[labels] = error
        variant = self._by_labels[labels]
        if isinstance(variant, MetricError):
            return Refusal(Status.MISSING_INPUT, f"{answers.column}: {variant.problem}")
        listed = "\n".join(str(value) for value in variant.answers.values)
        body = Messages(self.metric, self.explain).body(values | {CHOICES: listed})
        return [Question(variant, body)]

    def _variant(self, metric: Metric, order: Sequence[int], *, swapped: bool = False) -> Variant:
        # Where each row has labels of its own, they stand with the row: the frame is the same.
        shown = self.metric if isinstance(self.metric.answers, Open) else metric
        frame = self._frame(Messages(shown, self.explain))
        content, answers, tree, opening = self._encoder.content, metric.answers, None, ""
        if isinstance(answers, Open):
            raise TypeError("labels that come with each row are closed before they are asked")
        if isinstance(answers, Text):
            opening = answers.opening
        elif self.explain:
            opening = EXPLANATION_OPENING
            tree = AnswerTree.build(content, answers.endings, "")
        else:
            tree = AnswerTree.build(content, answers.documents, frame.context)
        values = [answers.values[place] for place in order]
        places = dict(zip(values, order, strict=True))
        if swapped and metric.pair is not None:
            first, second = metric.pair.labels
            places[first], places[second] = places[second], places[first]
        return Variant(
            messages=Messages(metric, self.explain),
            answers=answers,
            frame=frame,
            tree=tree,
            opening=tuple(content.encode(opening)),
            values=tuple(values),
            order=tuple(places.values()),
            swapped=swapped,
        )

    def _frame(self, messages: Messages) -> PromptFrame:
        key = (messages.system, messages.user_head)
        if key not in self._frames:
            self._frames[key] = self._encoder.frame(*key)
        return self._frames[key]


def _label_orders(metric: Metric, count: int) -> list[tuple[Metric, tuple[int, ...]]]:
    """Return the metric with its labels in `count` orders, the declared one first.

    With each comes, for every label of the metric, its place in that order. All orders are used if
    there are no more than `count`; otherwise the first is followed by its rotations, so that every
    label stands in every place equally often, and then by seeded random ones.
    """
    answers = metric.answers
    if not isinstance(answers, Labels):
        return [(metric, tuple(range(len(answers.values))))]
    size = len(answers.labels)
    orders: list[tuple[int, ...]] = [tuple(range(size))]
    if count > 1:
        orders = [tuple((i + shift) % size for i in range(size)) for shift in range(size)]
        if size <= 5:
            orders += [order for order in permutations(range(size)) if order not in orders]
        random = Random(0)
        while len(orders) < count and size > 5:
            orders.append(tuple(random.sample(range(size), size)))
    asked = []
    for order in orders[:count]:
        labels = Labels(tuple(answers.labels[index] for index in order))
        asked.append((replace(metric, answers=labels), tuple(order.index(i) for i in range(size))))
    return asked


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
