"""What came of asking the model, and how it becomes a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from localjudge.answers import Value
from localjudge.engines.base import Choice, Draft, Failure
from localjudge.errors import TokenizerError
from localjudge.explanations import LONGEST_WORD, Explanation
from localjudge.records import Row, Status, Verdict

if TYPE_CHECKING:
    from localjudge.metrics import Metric
    from localjudge.tasks import Variant
    from localjudge.tokens import ContentTokenizer

_PART_OF_A_WORD = re.compile(rf"\s\S{{0,{LONGEST_WORD}}}\Z")


@dataclass(frozen=True, slots=True)
class Thoughts:
    """What the model thought before its answer.

    Attributes:
        text: The text.
        cut: Whether the budget ended before the text did.
        tokens: Tokens that the model wrote.
    """

    text: str
    cut: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt under way.

    Attributes:
        variant: The way of asking that it belongs to.
        ids: Its token ids, with what the model is to go on from.
        tokens: How many of them are the prompt proper.
        thoughts: What the model thought, if it was to think.
        explanation: The explanation that the model wrote, if any.
    """

    variant: Variant
    ids: list[int]
    tokens: int
    thoughts: Thoughts | None = None
    explanation: Explanation | None = None

    @property
    def written(self) -> tuple[Thoughts | Explanation, ...]:
        """What the model has written so far."""
        return tuple(each for each in (self.thoughts, self.explanation) if each is not None)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no answer.

    Attributes:
        status: The verdict's status.
        error: What is wrong.
        prompt: What was asked, if there was a prompt at all.
        raw: What the model wrote in place of an answer.
        written: Tokens that it wrote there.
    """

    status: Status
    error: str
    prompt: Prompt | None = None
    raw: str | None = None
    written: int = 0


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
Asked = TypeVar("Asked")


def too_long(made: Iterable[Prompt | Refusal]) -> bool:
    """Say whether any prompt is too long for the model."""
    return any(isinstance(each, Refusal) and each.status is Status.INPUT_TOO_LONG for each in made)


def token_count(made: Iterable[Prompt | Refusal]) -> int:
    """Return how many tokens the longest of some prompts has, refused ones included."""
    prompts = (each.prompt if isinstance(each, Refusal) else each for each in made)
    return max((prompt.tokens for prompt in prompts if prompt is not None), default=0)


def read_choice(prompt: Prompt, result: Choice | Failure) -> Outcome:
    """Return the answer that `choose` found most probable."""
    if isinstance(result, Failure):
        return Refusal(Status.ENGINE_ERROR, result.error, prompt)
    if not all(isfinite(log_prob) for log_prob in result.log_probs):
        error = f"the model's log-probabilities are not finite: {list(result.log_probs)}"
        return Refusal(Status.ENGINE_ERROR, error, prompt)
    log_probs = tuple(result.log_probs[place] for place in prompt.variant.places)
    choice = replace(result, log_probs=log_probs)
    return Answer(_best(prompt, choice.log_probs), prompt, choice=choice)


def think(prompt: Prompt, draft: Draft | Failure) -> Prompt | Refusal:
    """Return the prompt with what the model thought behind it, up to where its answer begins.

    Thoughts that their budget cuts off end at their last whole word, if a space is near.
    """
    if isinstance(draft, Failure):
        return Refusal(Status.ENGINE_ERROR, draft.error, prompt)
    cut = draft.finish_reason == "length"
    text = (re.sub(_PART_OF_A_WORD, "", draft.text) if cut else draft.text).strip()
    try:
        closed = prompt.variant.frame.close(prompt.ids, text)
    except TokenizerError as error:
        return _unreadable(Status.INVALID_OUTPUT, str(error), prompt, draft)
    thoughts = Thoughts(text, cut, len(draft.ids))
    return replace(prompt, ids=prompt.variant.opening.extend(closed), thoughts=thoughts)


def explain(prompt: Prompt, draft: Draft | Failure, content: ContentTokenizer) -> Prompt | Refusal:
    """Return the prompt with the explanation that was written behind it."""
    if isinstance(draft, Failure):
        return Refusal(Status.ENGINE_ERROR, draft.error, prompt)
    try:
        explanation = Explanation.of(draft)
        ids = [*prompt.ids, *content.encode(explanation.written)]
    except (ValueError, TokenizerError) as error:
        return _unreadable(Status.INVALID_OUTPUT, str(error), prompt, draft)
    return replace(prompt, ids=ids, explanation=explanation)


def sorted_out(
    written: Mapping[Asked, Prompt | Refusal],
) -> tuple[dict[Asked, Prompt], dict[Asked, Outcome]]:
    """Part the prompts that go on from the questions that end here."""
    going_on: dict[Asked, Prompt] = {}
    failed: dict[Asked, Outcome] = {}
    for question, prompt in written.items():
        if isinstance(prompt, Refusal):
            failed[question] = prompt
        else:
            going_on[question] = prompt
    return going_on, failed


def parse_answer(prompt: Prompt, draft: Draft | Failure) -> Outcome:
    """Read an answer that was written under the pattern; nothing in it is repaired."""
    if isinstance(draft, Failure):
        return Refusal(Status.ENGINE_ERROR, draft.error, prompt)
    try:
        return Answer(prompt.variant.parse(draft.text), prompt, len(draft.ids))
    except ValueError as error:
        if draft.finish_reason == "length":
            problem = f"the answer was cut at {len(draft.ids)} tokens"
            return _unreadable(Status.TRUNCATED, problem, prompt, draft)
        return _unreadable(Status.INVALID_OUTPUT, str(error), prompt, draft)


def _unreadable(status: Status, error: str, prompt: Prompt, draft: Draft) -> Refusal:
    return Refusal(status, error, prompt, draft.text, len(draft.ids))


def join(metric: Metric, row: Row, outcomes: Sequence[Outcome], left_out: int = 0) -> Verdict:
    """Make one verdict of what came of a row's questions.

    The distributions of several ways of asking are averaged. A comparison of two inputs is asked
    in both orders; where they disagree, the verdict is a tie and `order_flip` is set. Where one
    question has no answer, the row has no verdict.

    Args:
        metric: The metric.
        row: The row.
        outcomes: What came of each question.
        left_out: How many tokens were cut out of the row's inputs.
    """
    prompts = [outcome.prompt for outcome in outcomes if outcome.prompt is not None]
    written = [each for prompt in prompts for each in prompt.written]
    common: dict[str, Any] = {
        "id": row.id,
        "metric": metric.name,
        "direction": metric.direction,
        "truncated": any(each.cut for each in written),
        "prompt_tokens": sum(prompt.tokens for prompt in prompts),
        "output_tokens": sum(outcome.written for outcome in outcomes)
        + sum(each.tokens for each in written),
    }
    answers = []
    for outcome in outcomes:
        if isinstance(outcome, Refusal):
            return _verdict(common | _without_value(outcome), left_out)
        answers.append(outcome)
    return _verdict(common | _with_value(metric, answers), left_out)


def _verdict(fields: dict[str, Any], left_out: int) -> Verdict:
    if left_out:
        fields["metadata"] |= {"input_truncated": True, "tokens_left_out": left_out}
    return Verdict(**fields)


def _without_value(refusal: Refusal) -> dict[str, Any]:
    return {
        "status": refusal.status,
        "error": refusal.error,
        "metadata": {} if refusal.raw is None else {"raw": refusal.raw},
        **({"truncated": True} if refusal.status is Status.TRUNCATED else {}),
    }


def _with_value(metric: Metric, answers: Sequence[Answer]) -> dict[str, Any]:
    value, metadata = _agreed(metric, answers)
    variant = answers[0].prompt.variant  # the first is asked in the declared order
    space = variant.answers
    leading = _leading(value, answers).prompt
    explanation, thoughts = leading.explanation, leading.thoughts
    fields: dict[str, Any] = {
        "status": Status.OK,
        "value": value,
        "label": value if space.kind == "classify" and isinstance(value, str) else None,
        "score": space.score(value),
        "explanation": None if explanation is None else explanation.text,
        "metadata": metadata | ({} if thoughts is None else {"thinking": thoughts.text}),
    }
    choices = [answer.choice for answer in answers if answer.choice is not None]
    if not choices:
        return fields
    distribution = _mean([choice.probabilities for choice in choices])
    probabilities = dict(zip(map(str, variant.values), distribution, strict=True))
    masses = [choice.mass for choice in choices if choice.mass is not None]
    reaches = [choice.reach for choice in choices if choice.reach is not None]
    if reaches:
        fields["metadata"] = {"judged_by": "head", **fields["metadata"]}
        if max(reaches) > 1:
            fields["metadata"]["beyond_training"] = True
    return fields | {
        "probabilities": probabilities,
        "confidence": probabilities[str(value)],
        "answer_mass": fsum(masses) / len(masses) if masses else None,
        "expected_score": space.expected_score(distribution),
    }


def _agreed(metric: Metric, answers: Sequence[Answer]) -> tuple[Value, dict[str, Any]]:
    """Return the answer on which the ways of asking agree, and whether they had to be joined."""
    sides: dict[bool, list[Answer]] = {}
    for answer in answers:
        sides.setdefault(answer.prompt.variant.swapped, []).append(answer)
    values = [_joint_value(side) for side in sides.values()]
    metadata: dict[str, Any] = {}
    if len(answers) > len(sides):
        metadata["label_flip"] = any(len({a.value for a in side}) > 1 for side in sides.values())
    if metric.pair is None:
        return values[0], metadata
    metadata["order_flip"] = len(set(values)) > 1
    return metric.pair.tie if metadata["order_flip"] else values[0], metadata


def _joint_value(answers: Sequence[Answer]) -> Value:
    distributions = [answer.choice.probabilities for answer in answers if answer.choice is not None]
    if len(distributions) < 2:
        return answers[0].value
    return _best(answers[0].prompt, _mean(distributions))


def _leading(value: Value, answers: Sequence[Answer]) -> Answer:
    """Return the first answer that is `value`, else the first of all: its reasons are shown.

    Where a pair was shown in the other order, they speak of the two the wrong way round.
    """
    declared = [answer for answer in answers if not answer.prompt.variant.swapped]
    leading = [answer for answer in declared if answer.value == value]
    return (leading or declared)[0]


def _mean(distributions: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(fsum(each) / len(distributions) for each in zip(*distributions, strict=True))


def _best(prompt: Prompt, numbers: Sequence[float]) -> Value:
    """Return the answer with the largest number, the first declared of equal ones."""
    values = prompt.variant.values
    return values[max(range(len(values)), key=numbers.__getitem__)]
