"""The judge: rows and a metric in, verdicts out. `Judge.ask` and `answer` are the whole loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, get_args

from localjudge.answers import Text
from localjudge.canary import check_engine
from localjudge.encoding import PromptEncoder, PromptFrame, PromptMode
from localjudge.engines import open_engine
from localjudge.engines.base import Draft, Engine, Failure
from localjudge.errors import ConfigError, DataError, TokenizerError
from localjudge.explanations import PATTERN
from localjudge.offline import go_offline
from localjudge.outcomes import Outcome, Prompt, Refusal, explain, join, parse_answer, read_choice
from localjudge.readers import as_rows
from localjudge.records import Row, Status, Verdict
from localjudge.tasks import Question, Task, Variant
from localjudge.toml_file import closest

if TYPE_CHECKING:
    from localjudge.metrics import Metric

Decoding = Literal["direct", "guided"]
_WRITTEN = 8  # how many times as long a row takes, about, that the model writes for


@dataclass(frozen=True, slots=True)
class Options:
    """How a judge asks.

    Attributes:
        decoding: `direct` reads the probability of each answer; `guided` lets outlines constrain
            the model token by token, and knows no probabilities.
        explain: Whether the model writes an explanation before its verdict.
        explain_tokens: The most tokens of an explanation; a longer one is cut at a whole word.
        permute_labels: In how many orders of its labels a classification is asked.

    Raises:
        ConfigError: an option is out of its range, or two do not go together.
    """

    decoding: Decoding = "direct"
    explain: bool = False
    explain_tokens: int = 120
    permute_labels: int = 1

    def __post_init__(self) -> None:
        check_choice("decoding", self.decoding, get_args(Decoding))
        for name in ("explain_tokens", "permute_labels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{getattr(self, name)} is not positive", field=name)
        if self.permute_labels > 1 and self.decoding == "guided":
            raise ConfigError(
                "guided decoding knows no probabilities, which several orders would be joined by",
                field="permute_labels",
                hint="use decoding `direct`, or ask in one order",
            )


def check_choice(name: str, value: str, known: Sequence[str]) -> None:
    """Raise ConfigError unless the option `name` has one of the `known` values."""
    if value not in known:
        raise ConfigError(f"{value!r} is unknown", field=name, hint=closest(str(value), known))


@dataclass(frozen=True, slots=True)
class Asked:
    """Rows whose prompts are made: what `Judge.ask` returns and `Judge.answer` takes.

    Attributes:
        task: The metric.
        rows: The rows.
        asked: Each row's questions, or why there are none.
        prompts: For each beginning that questions share: the prompts, and what could not be one.
    """

    task: Task
    rows: Sequence[Row]
    asked: Sequence[Sequence[Question] | Refusal]
    prompts: Sequence[tuple[Mapping[Question, Prompt], Mapping[Question, Outcome]]]


class Judge:
    """A model that judges rows by metrics.

    Args:
        engine: The engine that holds the model.
        prompt_mode: `chat` for instruction-tuned models, `raw` for base models.
        options: Arguments of `Options`.

    Raises:
        ConfigError: an option is wrong.
        TemplateError, TokenizerError: the model cannot carry prompts; see `PromptEncoder`.
    """

    def __init__(self, engine: Engine, *, prompt_mode: PromptMode = "chat", **options: Any) -> None:
        check_choice("prompt_mode", prompt_mode, get_args(PromptMode))
        self.engine = engine
        self.options = Options(**options)
        self._closed = False
        self.encoder = PromptEncoder(engine.tokenizer, mode=prompt_mode)

    @classmethod
    def open(
        cls,
        model: str | PathLike[str],
        *,
        engine: str = "auto",
        settings: Mapping[str, Any] | None = None,
        prompt_mode: PromptMode = "chat",
        **options: Any,
    ) -> Judge:
        """Load a model by its name or folder. No library uses the network from then on.

        Args:
            model: Name of an installed model, or a model folder.
            engine: See `open_engine`; `settings` are its further arguments.
            settings: `device`, `dtype`, `engine_args`.
            prompt_mode: `chat` or `raw`.
            options: Arguments of `Options`.

        Raises:
            ConfigError: there is no such engine, or an option of it is wrong.
            ModelError: there is no such model here, or its folder is damaged or not allowed.
            EngineError: the engine cannot load it.
        """
        check_choice("prompt_mode", prompt_mode, get_args(PromptMode))
        Options(**options)  # what is wrong with them is said before the model is loaded
        go_offline()
        opened = open_engine(engine, model, **(settings or {}))
        return cls(opened, prompt_mode=prompt_mode, **options)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What a verdict depends on beside metric and row, as far as this judge knows."""
        return {
            **self.engine.fingerprint,
            "template": self.encoder.digest,
            "system_folded": self.encoder.system_folded,
        }

    @property
    def chunk_rows(self) -> int:
        """How many rows are judged and stored at once; fewer where the model writes."""
        writes = self.options.explain or self.options.decoding == "guided"
        return max(1, self.engine.chunk_rows // (_WRITTEN if writes else 1))

    def check_engine(self) -> None:
        """Try the engine on a question whose free answer would not be an allowed one.

        Raises:
            EngineError: what came back is no allowed answer, or no probability.
        """
        if self.options.decoding == "direct":
            check_engine(self.engine, self.encoder, guided=False)
        if self.options.decoding == "guided" or self.options.explain:
            check_engine(self.engine, self.encoder, guided=True)

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
            rows: Rows, plain dicts, a `datasets.Dataset` or a pandas data frame; the id of a dict
                is its `id`, text or an integer, or its number from 1. Whether ids repeat is not
                checked. A value that cannot be shown as text costs only its row; NA and NaT of
                pandas are missing.
            mapping: Column or path to read for each input, where it is not the metric's default.

        Raises:
            DataError: a row is not a mapping, or has an id of another type.
            EngineError: the engine died; the verdicts before it are good.
        """
        task = self.prepare(metric, mapping)
        numbered = (Row.of(row, number) for number, row in enumerate(as_rows(rows), 1))
        while chunk := list(islice(numbered, self.chunk_rows)):
            yield from self.judge(task, chunk)

    def prepare(self, metric: Metric, mapping: Mapping[str, str] | None = None) -> Task:
        """Build what is the same for all rows: the prompt's frame and the tree of answers."""
        options = self.options
        return Task(
            self.encoder, metric, mapping, explain=options.explain, orders=options.permute_labels
        )

    def judge(self, task: Task, rows: Sequence[Row]) -> list[Verdict]:
        """Judge some rows at once and return their verdicts in the same order."""
        return self.answer(self.ask(task, rows))

    def ask(self, task: Task, rows: Sequence[Row]) -> Asked:
        """Make the prompts of some rows. It needs no engine, and may run while that is at work."""
        asked = [_questions(task, row) for row in rows]
        # Equal questions are asked once; sorted, those whose prompts begin alike stand together.
        questions = sorted(
            {question for each in asked if not isinstance(each, Refusal) for question in each},
            key=lambda question: (question.variant.frame.head, question.body),
        )
        frames = groupby(questions, key=lambda question: question.variant.frame)
        return Asked(task, rows, asked, [self._encode(frame, [*group]) for frame, group in frames])

    def answer(self, asked: Asked) -> list[Verdict]:
        """Put the prompts to the engine and return the rows' verdicts, in their order."""
        task = asked.task
        outcomes: dict[Question, Outcome] = {}
        for prompts, refused in asked.prompts:
            outcomes |= refused
            if task.explain:
                prompts, refused = self._explain(prompts)
                outcomes |= refused
            outcomes |= self._write(prompts) if self._writes(task) else self._read(prompts)
        found = [[a] if isinstance(a, Refusal) else [outcomes[q] for q in a] for a in asked.asked]
        return [join(task.metric, row, each) for row, each in zip(asked.rows, found, strict=True)]

    def _writes(self, task: Task) -> bool:
        return self.options.decoding == "guided" or isinstance(task.metric.answers, Text)

    def _encode(
        self, frame: PromptFrame, questions: Sequence[Question]
    ) -> tuple[dict[Question, Prompt], dict[Question, Outcome]]:
        """Encode the questions; a prompt that leaves no room for the answer is refused whole."""
        prompts: dict[Question, Prompt] = {}
        refused: dict[Question, Outcome] = {}
        encoded = frame.encode([question.body for question in questions])
        for question, ids in zip(questions, encoded, strict=True):
            if isinstance(ids, TokenizerError):
                refused[question] = Refusal(Status.ENGINE_ERROR, str(ids))
                continue
            variant = question.variant
            prompt = Prompt(variant, variant.opening.extend(ids), len(ids))
            room = len(prompt.ids) - len(ids) + variant.answer_tokens
            room += self.options.explain_tokens if variant.messages.explain else 0
            if len(ids) + room > self.engine.context_length:
                error = (
                    f"{len(ids)} prompt tokens and up to {room} for the answer; "
                    f"the limit is {self.engine.context_length}"
                )
                refused[question] = Refusal(Status.INPUT_TOO_LONG, error, prompt)
            else:
                prompts[question] = prompt
        return prompts, refused

    def _explain(
        self, prompts: Mapping[Question, Prompt]
    ) -> tuple[dict[Question, Prompt], dict[Question, Outcome]]:
        """Let the model write its explanations; a prompt then goes on to where the answer begins.

        An explanation that its budget cuts off ends at its last whole word: the verdict is not
        lost to it.
        """
        content, budget = self.encoder.content, self.options.explain_tokens
        explained: dict[Question, Prompt] = {}
        failed: dict[Question, Outcome] = {}
        for question, draft in self._drafts(prompts, lambda _: (PATTERN, budget)).items():
            prompt = explain(prompts[question], draft, content)
            if isinstance(prompt, Refusal):
                failed[question] = prompt
            else:
                explained[question] = prompt
        return explained, failed

    def _read(self, prompts: Mapping[Question, Prompt]) -> dict[Question, Outcome]:
        """Read each answer's probability at the places where the answers part."""
        trees = [prompt.variant.tree for prompt in prompts.values()]
        ids = [prompt.variant.tree.extend(prompt.ids) for prompt in prompts.values()]
        results = self.engine.choose(ids, trees) if prompts else []
        return {
            question: read_choice(prompt, result)
            for (question, prompt), result in zip(prompts.items(), results, strict=True)
        }

    def _write(self, prompts: Mapping[Question, Prompt]) -> dict[Question, Outcome]:
        """Let the model write each answer under its pattern, and read it strictly."""
        drafts = self._drafts(prompts, lambda variant: (variant.pattern, variant.answer_tokens))
        return {question: parse_answer(prompts[question], drafts[question]) for question in prompts}

    def _drafts(
        self,
        prompts: Mapping[Question, Prompt],
        asks: Callable[[Variant], tuple[str, int]],
    ) -> dict[Question, Draft | Failure]:
        """Let the engine write, one call for each pattern and budget that is asked for."""
        groups: dict[tuple[str, int], list[Question]] = {}
        for question in prompts:
            groups.setdefault(asks(question.variant), []).append(question)
        drafts: dict[Question, Draft | Failure] = {}
        for (pattern, budget), group in groups.items():
            ids = [prompts[question].ids for question in group]
            drafts |= zip(group, self.engine.write(ids, pattern, budget), strict=True)
        return drafts

    def close(self) -> None:
        """Free the model. Closing again does no harm."""
        if not self._closed:
            self._closed = True
            self.engine.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _questions(task: Task, row: Row) -> list[Question] | Refusal:
    try:
        return task.questions(row)
    except DataError as error:
        return Refusal(Status.MISSING_INPUT, f"{error.field}: {error.problem}")
    except RecursionError:
        return Refusal(Status.MISSING_INPUT, "a value is nested too deeply")
