"""The judge: rows and a metric in, verdicts out. `Judge.judge` is the whole loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from localjudge.canary import check_engine
from localjudge.encoding import PromptEncoder, PromptFrame, PromptMode
from localjudge.engines import open_engine
from localjudge.engines.base import Choice, Draft, Engine, Failure
from localjudge.errors import DataError, TokenizerError
from localjudge.records import Row, Status, Verdict
from localjudge.tree import AnswerTree

if TYPE_CHECKING:
    from localjudge.answers import Value
    from localjudge.metrics import Metric

Decoding = Literal["direct", "guided"]


@dataclass(frozen=True, slots=True)
class Task:
    """One metric made ready for one model."""

    metric: Metric
    columns: Mapping[str, str]
    frame: PromptFrame
    tree: AnswerTree

    @property
    def answer_budget(self) -> int:
        """The most tokens that an answer can take: under a constraint, one for each byte."""
        return 1 + max(len(text.encode()) for text in self.metric.answers.documents)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model answered to one prompt."""

    value: Value
    prompt_tokens: int
    output_tokens: int = 0
    choice: Choice | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no answer."""

    status: Status
    error: str
    prompt_tokens: int = 0
    raw: str | None = None


class Judge:
    """A model that judges rows by metrics.

    Args:
        engine: The engine that holds the model.
        decoding: `direct` reads the probability of each answer; `guided` lets outlines constrain
            the model token by token, and knows no probabilities.
        prompt_mode: `chat` for instruction-tuned models, `raw` for base models.

    Raises:
        TemplateError, TokenizerError: the model cannot carry prompts; see `PromptEncoder`.
    """

    def __init__(
        self, engine: Engine, *, decoding: Decoding = "direct", prompt_mode: PromptMode = "chat"
    ) -> None:
        self.engine = engine
        self.decoding = decoding
        self.encoder = PromptEncoder(engine.tokenizer, mode=prompt_mode)

    @classmethod
    def open(
        cls,
        model: str | PathLike[str],
        *,
        engine: str = "auto",
        decoding: Decoding = "direct",
        prompt_mode: PromptMode = "chat",
        **settings: Any,
    ) -> Judge:
        """Load a model by its name or folder; `engine` and `settings` are those of `open_engine`.

        Raises:
            ConfigError: there is no such engine, or an option of it is wrong.
            ModelError: there is no such model here, or its folder is damaged or not allowed.
            EngineError: the engine cannot load it.
        """
        opened = open_engine(engine, model, **settings)
        return cls(opened, decoding=decoding, prompt_mode=prompt_mode)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What a verdict depends on beside metric and row, as far as this judge knows."""
        return {
            **self.engine.fingerprint,
            "template": self.encoder.digest,
            "system_folded": self.encoder.system_folded,
        }

    def check_engine(self) -> None:
        """Try the engine on a question whose free answer would not be an allowed one.

        Raises:
            EngineError: what came back is no allowed answer, or no probability.
        """
        check_engine(self.engine, self.encoder, guided=self.decoding == "guided")

    def run(
        self,
        metric: Metric,
        rows: Iterable[Row | Mapping[str, Any]],
        *,
        mapping: Mapping[str, str] | None = None,
    ) -> Iterator[Verdict]:
        """Judge `rows`, lazily, and yield one verdict each, in their order.

        Args:
            metric: The metric; see `load_metric`, `classifier` and `scorer`.
            rows: Rows, or plain dicts; the id of a dict is its `id`, or its number from 1.
            mapping: Column to read for each input, where it is not the metric's default.

        Raises:
            DataError: a row is not a mapping.
            EngineError: the engine died; the verdicts before it are good.
        """
        task = self.prepare(metric, mapping)
        numbered = (_as_row(row, number) for number, row in enumerate(rows, 1))
        while chunk := list(islice(numbered, self.engine.chunk_rows)):
            yield from self.judge(task, chunk)

    def prepare(self, metric: Metric, mapping: Mapping[str, str] | None = None) -> Task:
        """Build what is the same for all rows: the prompt's frame and the tree of answers."""
        frame = self.encoder.frame(metric.system_text(), metric.user_head)
        tree = AnswerTree.build(self.encoder.content, metric.answers, frame.context)
        return Task(metric, metric.columns(mapping), frame, tree)

    def judge(self, task: Task, rows: Sequence[Row]) -> list[Verdict]:
        """Judge some rows at once and return their verdicts in the same order."""
        bodies = [_body(task, row) for row in rows]
        # Equal prompts are judged once; sorted, those that begin alike stand together.
        texts = sorted({body for body in bodies if isinstance(body, str)})
        outcomes: dict[str | Refusal, Answer | Refusal] = {}
        prompts: dict[str, list[int]] = {}
        for text, prompt in zip(texts, self._encode(task, texts), strict=True):
            if isinstance(prompt, Refusal):
                outcomes[text] = prompt
            else:
                prompts[text] = prompt
        ask = self._read if self.decoding == "direct" else self._write
        outcomes |= zip(prompts, ask(task, list(prompts.values())), strict=True)
        return [
            _verdict(task, row, body if isinstance(body, Refusal) else outcomes[body])
            for row, body in zip(rows, bodies, strict=True)
        ]

    def _encode(self, task: Task, texts: Sequence[str]) -> Iterator[list[int] | Refusal]:
        """Encode the rows' parts; a prompt that leaves no room for the answer is refused whole."""
        for prompt in task.frame.encode(texts):
            if isinstance(prompt, TokenizerError):
                yield Refusal(Status.ENGINE_ERROR, str(prompt))
            elif len(prompt) + task.answer_budget > self.engine.context_length:
                yield Refusal(
                    Status.INPUT_TOO_LONG,
                    f"{len(prompt)} prompt tokens and up to {task.answer_budget} for the answer; "
                    f"the limit is {self.engine.context_length}",
                    len(prompt),
                )
            else:
                yield prompt

    def _read(self, task: Task, prompts: Sequence[list[int]]) -> Iterator[Answer | Refusal]:
        """Read each answer's probability at the places where the answers part."""
        values = task.metric.answers.values
        extended = [task.tree.extend(prompt) for prompt in prompts]
        results = self.engine.choose(extended, task.tree) if prompts else []
        for prompt, result in zip(prompts, results, strict=True):
            if isinstance(result, Failure):
                yield Refusal(Status.ENGINE_ERROR, result.error, len(prompt))
            elif not all(isfinite(log_prob) for log_prob in result.log_probs):
                error = f"the model's log-probabilities are not finite: {list(result.log_probs)}"
                yield Refusal(Status.ENGINE_ERROR, error, len(prompt))
            else:
                best = max(range(len(values)), key=result.log_probs.__getitem__)
                yield Answer(values[best], len(prompt), choice=result)

    def _write(self, task: Task, prompts: Sequence[list[int]]) -> Iterator[Answer | Refusal]:
        """Let the model write the answer under the pattern, and read it strictly."""
        pattern, budget = task.metric.answers.pattern, task.answer_budget
        results = self.engine.write(prompts, pattern, budget) if prompts else []
        for prompt, result in zip(prompts, results, strict=True):
            if isinstance(result, Draft):
                yield _parse(task, len(prompt), result)
            else:
                yield Refusal(Status.ENGINE_ERROR, result.error, len(prompt))

    def close(self) -> None:
        """Free the model."""
        self.engine.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _as_row(row: Row | Mapping[str, Any], number: int) -> Row:
    if isinstance(row, Row):
        return row
    if not isinstance(row, Mapping):
        raise DataError(
            f"row {number} is of type {type(row).__name__}",
            hint="give each row as a dict of column to value",
        )
    return Row(str(row.get("id", number)), row)


def _body(task: Task, row: Row) -> str | Refusal:
    """Return the row's part of the user turn."""
    values, missing = task.metric.values(row.fields, task.columns)
    if missing:
        return Refusal(Status.MISSING_INPUT, f"missing or blank: {', '.join(missing)}")
    return task.metric.user_text(values)[len(task.metric.user_head) :]


def _parse(task: Task, prompt_tokens: int, draft: Draft) -> Answer | Refusal:
    if draft.finish_reason == "length":
        error = f"the answer was cut at {task.answer_budget} tokens"
        return Refusal(Status.TRUNCATED, error, prompt_tokens, draft.text)
    try:
        value = task.metric.answers.parse(draft.text)
    except ValueError as error:
        return Refusal(Status.INVALID_OUTPUT, str(error), prompt_tokens, draft.text)
    return Answer(value, prompt_tokens, len(draft.ids))


def _verdict(task: Task, row: Row, outcome: Answer | Refusal) -> Verdict:
    metric = task.metric
    if isinstance(outcome, Refusal):
        return Verdict(
            id=row.id,
            metric=metric.name,
            status=outcome.status,
            direction=metric.direction,
            truncated=outcome.status is Status.TRUNCATED,
            prompt_tokens=outcome.prompt_tokens,
            error=outcome.error,
            metadata={} if outcome.raw is None else {"raw": outcome.raw},
        )
    answers, value, choice = metric.answers, outcome.value, outcome.choice
    probabilities = choice.probabilities if choice else ()
    return Verdict(
        id=row.id,
        metric=metric.name,
        status=Status.OK,
        value=value,
        label=value if isinstance(value, str) else None,
        score=answers.score(value),
        probabilities=dict(zip(map(str, answers.values), probabilities, strict=True))
        if choice
        else None,
        confidence=max(probabilities) if choice else None,
        answer_mass=choice.mass if choice else None,
        expected_score=answers.expected_score(probabilities) if choice else None,
        direction=metric.direction,
        prompt_tokens=outcome.prompt_tokens,
        output_tokens=outcome.output_tokens,
    )
