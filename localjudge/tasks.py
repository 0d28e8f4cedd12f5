"""Metrics made ready for one model: the ways of asking, and what each row asks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from random import Random
from typing import NamedTuple

from localjudge.answers import EXPLANATION_OPENING, Labels, Open, Text
from localjudge.encoding import PromptEncoder, PromptFrame
from localjudge.errors import ConfigError, MetricError
from localjudge.messages import Messages
from localjudge.metrics import Metric
from localjudge.paths import lookup
from localjudge.records import Row, Status
from localjudge.templates import CHOICES
from localjudge.tree import AnswerTree

_KEPT_LISTS = 4096  # trees of rows' own label lists


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no answer."""

    status: Status
    error: str
    prompt_tokens: int = 0
    raw: str | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Variant:
    """One way of asking a metric.

    Attributes:
        messages: The metric as messages; its answers may stand in another order.
        columns: Input to column or path; those of a pair may be swapped.
        frame: What stands around a row in the prompt.
        tree: The answers as tokens; None for text.
        opening: Ids of the fixed beginning of a written answer or explanation; empty if none.
        order: For each answer of the metric, its place among this variant's answers.
    """

    messages: Messages
    columns: Mapping[str, str]
    frame: PromptFrame
    tree: AnswerTree | None
    opening: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def metric(self) -> Metric:
        """The metric, as this variant asks it."""
        return self.messages.metric


class Question(NamedTuple):
    """What is asked about a row: equal questions are asked once."""

    variant: Variant
    body: str


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
        if explain and isinstance(metric.answers, Text):
            raise ConfigError(
                f"the metric {metric.name} answers with text, which is not explained",
                field="explain",
            )
        if orders > 1 and not isinstance(metric.answers, Labels):
            raise ConfigError(
                f"the metric {metric.name} has no list of labels that could be put in orders",
                field="permute_labels",
            )
        self.metric = metric
        self.columns = metric.columns(mapping)
        self.explain = explain
        self._encoder = encoder
        self._by_labels: dict[tuple[str, ...], Variant | MetricError] = {}
        self._frames: dict[tuple[str, str], PromptFrame] = {}
        self.variants = tuple(
            self._variant(asked, columns, order)
            for columns in self._column_orders()
            for asked, order in _label_orders(metric, orders)
            if not isinstance(metric.answers, Open)
        )

    def questions(self, row: Row) -> list[Question] | Refusal:
        """Return what to ask about a row, one question for each variant."""
        values, missing = self.metric.values(row.fields, self.columns)
        if missing:
            return Refusal(Status.MISSING_INPUT, f"missing or blank: {', '.join(missing)}")
        if isinstance(self.metric.answers, Open):
            return self._open_question(self.metric.answers, row, values)
        if len(self.variants) == 1:
            return [Question(self.variants[0], self.variants[0].messages.body(values))]
        return [
            Question(variant, variant.messages.body(_swapped(values, self.columns, variant)))
            for variant in self.variants
        ]

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
                closed = replace(self.metric, answers=answers.close(labels), examples=())
                self._by_labels[labels] = self._variant(closed, self.columns, None)
            except MetricError as error:
                self._by_labels[labels] = error
        variant = self._by_labels[labels]
        if isinstance(variant, MetricError):
            return Refusal(Status.MISSING_INPUT, f"{answers.column}: {variant.problem}")
        listed = "\n".join(str(value) for value in variant.metric.answers.values)
        body = Messages(self.metric, self.explain).body(values | {CHOICES: listed})
        return [Question(variant, body)]

    def _variant(
        self, metric: Metric, columns: Mapping[str, str], order: Sequence[int] | None
    ) -> Variant:
        messages = Messages(metric, self.explain)
        # The prompt of a row's own labels lists them with the row: its frame is the metric's.
        shown = Messages(self.metric, self.explain) if order is None else messages
        key = (shown.system, shown.user_head)
        if key not in self._frames:
            self._frames[key] = self._encoder.frame(*key)
        frame, answers = self._frames[key], metric.answers
        content = self._encoder.content
        if isinstance(answers, Text):
            opening = content.encode(frame.context + answers.opening)
            return Variant(messages, columns, frame, None, tuple(opening), ())
        if isinstance(answers, Open):
            raise TypeError("an open list of labels is closed before it is asked")
        if self.explain:
            tree = AnswerTree.build(content, answers.endings, "")
            opening = content.encode(frame.context + EXPLANATION_OPENING)
        else:
            tree = AnswerTree.build(content, answers.documents, frame.context)
            opening = []
        places = tuple(order or range(len(answers.values)))
        return Variant(messages, columns, frame, tree, tuple(opening), places)

    def _column_orders(self) -> list[dict[str, str]]:
        pair = self.metric.pair
        if pair is None:
            return [self.columns]
        first, second = pair.inputs
        swapped = {first: self.columns[second], second: self.columns[first]}
        return [self.columns, self.columns | swapped]


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


def _swapped(
    values: Mapping[str, str], columns: Mapping[str, str], variant: Variant
) -> Mapping[str, str]:
    if variant.columns == columns or variant.metric.pair is None:
        return values
    first, second = variant.metric.pair.inputs
    return {**values, first: values[second], second: values[first]}


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
