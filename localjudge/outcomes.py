"""What came of asking the model, and how it becomes a verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum, isfinite
from typing import TYPE_CHECKING, Any

from localjudge.answers import Closed, Text, Value
from localjudge.engines.base import Choice, Draft, Failure
from localjudge.records import Row, Status, Verdict

if TYPE_CHECKING:
    from localjudge.metrics import Metric
    from localjudge.tasks import Question, Task, Variant


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation that the model wrote before its verdict.

    Attributes:
        written: The text as it stands in the JSON string.
        cut: Whether the budget ended before the text did.
        tokens: Tokens that the model wrote.
    """

    written: str
    cut: bool
    tokens: int

    @classmethod
    def of(cls, draft: Draft) -> Explanation:
        """Take the explanation from a draft; a cut one ends at its last whole word."""
        if draft.finish_reason == "stop":
            return cls(draft.text.removesuffix('"'), False, len(draft.ids))
        whole = re.sub(r"\s*\S*\Z", "", draft.text) or draft.text
        # A backslash at the end would escape the quotation mark that closes the string.
        whole = re.sub(r"(?<!\\)((?:\\\\)*)\\\Z", r"\1", whole)
        return cls(whole, True, len(draft.ids))

    @property
    def text(self) -> str:
        """The text as it is read."""
        text: str = json.loads(f'"{self.written}"')
        return text


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt under way.

    Attributes:
        ids: Its token ids, with what the model has written so far.
        tokens: How many of them are the prompt proper.
        explanation: The explanation that the model wrote, if any.
    """

    ids: list[int]
    tokens: int
    explanation: Explanation | None = None

    def then(self, ids: Sequence[int]) -> Prompt:
        """Return the prompt with `ids` behind it."""
        return replace(self, ids=[*self.ids, *ids])


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no answer."""

    status: Status
    error: str
    prompt_tokens: int = 0
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model answered to one question.

    Attributes:
        value: The answer.
        prompt: What it was asked.
        written: Tokens that it wrote for the answer itself.
        choice: The distribution over the metric's answers, in their declared order, if it was read.
    """

    value: Value
    prompt: Prompt
    written: int = 0
    choice: Choice | None = None


Outcome = Answer | Refusal


def read_choice(variant: Variant, prompt: Prompt, result: Choice | Failure) -> Outcome:
    """Return the answer that `choose` found most probable."""
    if isinstance(result, Failure):
        return Refusal(Status.ENGINE_ERROR, result.error, prompt.tokens)
    if not all(isfinite(log_prob) for log_prob in result.log_probs):
        error = f"the model's log-probabilities are not finite: {list(result.log_probs)}"
        return Refusal(Status.ENGINE_ERROR, error, prompt.tokens)
    choice = Choice(tuple(result.log_probs[place] for place in variant.order))
    return Answer(variant.values[_best(choice.log_probs)], prompt, choice=choice)


def parse_answer(variant: Variant, prompt: Prompt, draft: Draft | Failure) -> Outcome:
    """Read an answer that was written under the pattern; nothing in it is repaired."""
    if isinstance(draft, Failure):
        return Refusal(Status.ENGINE_ERROR, draft.error, prompt.tokens)
    # Behind an explanation the draft goes on in the middle of the document.
    written = draft.text.replace('", ', "{", 1) if prompt.explanation else draft.text
    value = _parse(variant.answers, prompt, draft, written)
    if isinstance(value, Refusal):
        return value
    place = variant.answers.values.index(value)
    return Answer(variant.values[variant.order.index(place)], prompt, len(draft.ids))


def parse_text(variant: Variant, prompt: Prompt, draft: Draft | Failure) -> Outcome:
    """Read a text that was written behind its opening, up to its closing quotation mark."""
    answers = variant.answers
    if isinstance(draft, Failure) or not isinstance(answers, Text):
        error = draft.error if isinstance(draft, Failure) else "this metric does not answer by text"
        return Refusal(Status.ENGINE_ERROR, error, prompt.tokens)
    value = _parse(answers, prompt, draft, f"{answers.opening}{draft.text}}}")
    return value if isinstance(value, Refusal) else Answer(value, prompt, len(draft.ids))


def _parse(answers: Closed | Text, prompt: Prompt, draft: Draft, text: str) -> Value | Refusal:
    if draft.finish_reason == "length":
        error = f"the answer was cut at {len(draft.ids)} tokens"
        return Refusal(Status.TRUNCATED, error, prompt.tokens, draft.text)
    try:
        return answers.parse(text)
    except ValueError as error:
        return Refusal(Status.INVALID_OUTPUT, str(error), prompt.tokens, draft.text)


def join(
    task: Task, row: Row, questions: Sequence[Question] | Refusal, outcomes: Sequence[Outcome]
) -> Verdict:
    """Make one verdict of what came of a row's questions, given in their order.

    The distributions of several ways of asking are averaged. A comparison of two inputs is asked
    in both orders; where they disagree, the verdict is a tie and `order_flip` is set.
    """
    if isinstance(questions, Refusal):
        return _failed(task.metric, row, questions)
    answers: list[Answer] = []
    for outcome in outcomes:
        if isinstance(outcome, Refusal):
            return _failed(task.metric, row, outcome)
        answers.append(outcome)
    space = questions[0].variant.answers
    value, metadata = _agreed(task, questions, answers)
    distribution = _mean([a.choice.probabilities for a in answers if a.choice is not None])
    probabilities = dict(zip(map(str, space.values), distribution, strict=False))
    explanations = [a.prompt.explanation for a in answers if a.prompt.explanation is not None]
    masses = [a.choice.mass for a in answers if a.choice is not None]
    return Verdict(
        id=row.id,
        metric=task.metric.name,
        status=Status.OK,
        value=value,
        label=value if space.kind == "classify" and isinstance(value, str) else None,
        score=space.score(value),
        probabilities=probabilities or None,
        confidence=probabilities[str(value)] if probabilities else None,
        answer_mass=fsum(masses) / len(masses) if masses else None,
        expected_score=space.expected_score(distribution) if probabilities else None,
        explanation=explanations[0].text if explanations else None,
        direction=task.metric.direction,
        truncated=any(explanation.cut for explanation in explanations),
        prompt_tokens=sum(a.prompt.tokens for a in answers),
        output_tokens=sum(a.written for a in answers) + sum(e.tokens for e in explanations),
        metadata=metadata,
    )


def _agreed(
    task: Task, questions: Sequence[Question], answers: Sequence[Answer]
) -> tuple[Value, dict[str, Any]]:
    """Return the answer on which the ways of asking agree, and whether they had to be joined."""
    if len(answers) == 1:
        return answers[0].value, {}
    metadata: dict[str, Any] = {}
    sides: dict[bool, list[Answer]] = {}
    for question, answer in zip(questions, answers, strict=True):
        sides.setdefault(question.variant.swapped, []).append(answer)
    if task.orders > 1:
        metadata["label_flip"] = any(len({a.value for a in side}) > 1 for side in sides.values())
    values = [_joint_value(questions[0].variant.values, side) for side in sides.values()]
    if task.metric.pair is None:
        return values[0], metadata
    metadata["order_flip"] = len(set(values)) > 1
    return task.metric.pair.tie if metadata["order_flip"] else values[0], metadata


def _joint_value(values: Sequence[Value], answers: Sequence[Answer]) -> Value:
    if len(answers) == 1:
        return answers[0].value
    return values[_best(_mean([a.choice.probabilities for a in answers if a.choice is not None]))]


def _mean(distributions: Sequence[Sequence[float]]) -> tuple[float, ...]:
    if len(distributions) == 1:
        return tuple(distributions[0])
    return tuple(fsum(each) / len(distributions) for each in zip(*distributions, strict=True))


def _best(numbers: Sequence[float]) -> int:
    return max(range(len(numbers)), key=numbers.__getitem__)


def _failed(metric: Metric, row: Row, refusal: Refusal) -> Verdict:
    return Verdict(
        id=row.id,
        metric=metric.name,
        status=refusal.status,
        direction=metric.direction,
        truncated=refusal.status is Status.TRUNCATED,
        prompt_tokens=refusal.prompt_tokens,
        error=refusal.error,
        metadata={} if refusal.raw is None else {"raw": refusal.raw},
    )
