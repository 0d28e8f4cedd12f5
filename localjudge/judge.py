"""The judge: rows and a metric in, verdicts out. `Judge.ask` and `answer` are the whole loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, get_args

from localjudge.answers import Text
from localjudge.canary import check_engine
from localjudge.encoding import PromptEncoder, PromptMode
from localjudge.engines import open_engine
from localjudge.engines.base import Choice, Draft, Engine, Failure
from localjudge.errors import TokenizerError
from localjudge.explanations import PATTERN
from localjudge.models import load_tokenizer
from localjudge.offline import go_offline
from localjudge.options import Options, check_choice
from localjudge.outcomes import (
    Outcome,
    Prompt,
    Refusal,
    explain,
    join,
    parse_answer,
    read_choice,
    sorted_out,
    think,
    token_count,
    too_long,
)
from localjudge.readers import as_rows
from localjudge.records import Row, Status, Verdict
from localjudge.tasks import Question, Task, Variant, by_frame, questions_of
from localjudge.truncation import shortened

if TYPE_CHECKING:
    from localjudge.heads import Head
    from localjudge.metrics import Metric

_WRITTEN = 8  # how many times as long a row takes, about, that the model writes for


@dataclass(frozen=True, slots=True)
class Asked:
    """Rows whose prompts are made: what `Judge.ask` returns and `Judge.answer` takes.

    Attributes:
        task: The metric.
        rows: The rows.
        asked: Each row's questions, or why there are none.
        made: The prompt of each question, or why there is none; equal questions are asked once.
        left_out: Of rows whose inputs were cut, by their place: the number of tokens cut out.
    """

    task: Task
    rows: Sequence[Row]
    asked: Sequence[Sequence[Question] | Refusal]
    made: Mapping[Question, Prompt | Refusal]
    left_out: Mapping[int, int]


class Judge:
    """A model that judges rows by metrics.

    Args:
        engine: The engine that holds the model.
        prompt_mode: `chat` for instruction-tuned models, `raw` for base models.
        options: Arguments of `Options`.

    Raises:
        ConfigError: an option is wrong, or the model is to think and has no thinking mode.
        TemplateError, TokenizerError: the model cannot carry prompts; see `PromptEncoder`.
    """

    def __init__(self, engine: Engine, *, prompt_mode: PromptMode = "chat", **options: Any) -> None:
        check_choice("prompt_mode", prompt_mode, get_args(PromptMode))
        self.engine = engine
        self.options = Options.of(options)
        self._closed = False
        self.prompt_mode = prompt_mode
        self.encoder = PromptEncoder(engine.tokenizer, mode=prompt_mode, think=self.options.think)

    @classmethod
    def open(
        cls,
        model: str | PathLike[str],
        *,
        engine: str = "auto",
        settings: Mapping[str, Any] | None = None,
        prompt_mode: PromptMode = "chat",
        embed: bool = False,
        **options: Any,
    ) -> Judge:
        """Load a model by its name or folder. No library uses the network from then on.

        Args:
            model: Name of an installed model, or a model folder.
            engine: See `open_engine`; `settings` are its further arguments.
            settings: `device`, `dtype`, `engine_args`.
            prompt_mode: `chat` or `raw`.
            embed: Whether heads decide, which read hidden states; see `open_engine`.
            options: Arguments of `Options`.

        Raises:
            ConfigError: there is no such engine, or an option of it is wrong.
            ModelError: there is no such model here, or its folder is damaged or not allowed.
            EngineError: the engine cannot load it.
        """
        check_choice("prompt_mode", prompt_mode, get_args(PromptMode))
        asking = Options.of(options)  # what is wrong with them is said before the model is loaded
        go_offline()
        if asking.think:
            PromptEncoder(load_tokenizer(model), mode=prompt_mode, think=True)
        opened = open_engine(engine, model, embed=embed, **(settings or {}))
        return cls(opened, prompt_mode=prompt_mode, **options)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What a verdict depends on beside metric and row, as far as this judge knows."""
        return {
            **self.engine.fingerprint,
            "template": self.encoder.digest,
            "system_folded": self.encoder.system_folded,
        }

    def judged_by(self, model: str) -> dict[str, str]:
        """Return what hidden states depend on, for heads: `model` is the model's digest."""
        return {"model": model, "template": self.encoder.digest, "prompt mode": self.prompt_mode}

    @property
    def chunk_rows(self) -> int:
        """How many rows are judged and stored at once; fewer where the model writes."""
        options = self.options
        writes = options.explain or options.think or options.decoding == "guided"
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

    def prepare(
        self,
        metric: Metric,
        mapping: Mapping[str, str] | None = None,
        head: Head | None = None,
    ) -> Task:
        """Build what is the same for all rows: the prompt's frame and the tree of answers."""
        options = self.options
        return Task(
            self.encoder,
            metric,
            mapping,
            explain=options.explain,
            orders=options.permute_labels,
            truncate=options.truncate,
            head=head,
        )

    def judge(self, task: Task, rows: Sequence[Row]) -> list[Verdict]:
        """Judge some rows at once and return their verdicts in the same order."""
        return self.answer(self.ask(task, rows))

    def ask(self, task: Task, rows: Sequence[Row]) -> Asked:
        """Make the prompts of some rows. It needs no engine, and may run while that is at work."""
        asked = [questions_of(task, row) for row in rows]
        made = self._encode([q for each in asked if not isinstance(each, Refusal) for q in each])
        cut: dict[int, int] = {}
        if task.truncate:
            for place, questions in enumerate(asked):
                if not isinstance(questions, Refusal) and too_long(made[q] for q in questions):
                    asked[place], cut[place] = self._shorten(task, rows[place], questions, made)
        return Asked(task, rows, asked, made, cut)

    def answer(self, asked: Asked) -> list[Verdict]:
        """Put the prompts to the engine and return the rows' verdicts, in their order."""
        task = asked.task
        outcomes: dict[Question, Outcome] = {}
        for group in by_frame(asked.made):
            prompts: dict[Question, Prompt] = {}
            for question in group:
                made = asked.made[question]
                if isinstance(made, Refusal):
                    outcomes[question] = made
                else:
                    prompts[question] = made
            if self.options.think:
                prompts, refused = self._think(prompts)
                outcomes |= refused
            if task.explain:
                prompts, refused = self._explain(prompts)
                outcomes |= refused
            outcomes |= (
                self._write(prompts) if self._writes(task) else self._read(prompts, task.head)
            )
        found = [[a] if isinstance(a, Refusal) else [outcomes[q] for q in a] for a in asked.asked]
        return [
            join(task.metric, row, each, asked.left_out.get(place, 0))
            for place, (row, each) in enumerate(zip(asked.rows, found, strict=True))
        ]

    def _writes(self, task: Task) -> bool:
        return self.options.decoding == "guided" or isinstance(task.metric.answers, Text)

    def _encode(self, questions: Iterable[Question]) -> dict[Question, Prompt | Refusal]:
        """Encode the questions; equal ones are encoded, and later asked, once."""
        made: dict[Question, Prompt | Refusal] = {}
        for group in by_frame(dict.fromkeys(questions)):
            encoded = group[0].variant.frame.encode([question.body for question in group])
            for question, ids in zip(group, encoded, strict=True):
                made[question] = self._prompt(question.variant, ids)
        return made

    def _prompt(self, variant: Variant, ids: list[int] | TokenizerError) -> Prompt | Refusal:
        """Return the prompt; one that leaves no room for the answer is refused whole."""
        if isinstance(ids, TokenizerError):
            return Refusal(Status.ENGINE_ERROR, str(ids))
        options = self.options
        opened = variant.opening.extend(variant.frame.close(ids, ""))
        prompt = Prompt(variant, ids if options.think else opened, len(ids))
        room = len(opened) - len(ids) + variant.answer_tokens
        room += options.think_tokens if options.think else 0
        room += options.explain_tokens if variant.messages.explain else 0
        if len(ids) + room <= self.engine.context_length:
            return prompt
        error = (
            f"{len(ids)} prompt tokens and up to {room} for the answer; "
            f"the limit is {self.engine.context_length}"
        )
        return Refusal(Status.INPUT_TOO_LONG, error, prompt)

    def _shorten(
        self, task: Task, row: Row, whole: list[Question], made: dict[Question, Prompt | Refusal]
    ) -> tuple[list[Question], int]:
        """Cut a row's inputs to fit; add the prompts to `made`.

        Returns:
            The questions, and the number of tokens cut out.
        """

        def ask(texts: Mapping[str, str]) -> list[Question]:
            asked = task.questions(row, texts)
            return [] if isinstance(asked, Refusal) else asked

        texts, _ = task.metric.values(row.fields, task.columns)
        cut = shortened(
            texts, task.truncate, lambda texts: not too_long(self._encode(ask(texts)).values())
        )
        if cut is None:
            return whole, 0
        questions = ask(cut)
        prompts = self._encode(questions)
        left_out = token_count(made[question] for question in whole) - token_count(prompts.values())
        made |= prompts
        return questions, left_out

    def _think(
        self, prompts: Mapping[Question, Prompt]
    ) -> tuple[dict[Question, Prompt], dict[Question, Outcome]]:
        """Let the model think; a prompt then goes on to where its answer begins."""
        ids = [prompt.ids for prompt in prompts.values()]
        drafts = self.engine.think(ids, self.options.think_tokens) if prompts else []
        return sorted_out(
            {
                question: think(prompt, draft)
                for (question, prompt), draft in zip(prompts.items(), drafts, strict=True)
            }
        )

    def _explain(
        self, prompts: Mapping[Question, Prompt]
    ) -> tuple[dict[Question, Prompt], dict[Question, Outcome]]:
        """Let the model write its explanations; a prompt then goes on to where the answer begins.

        An explanation that its budget cuts off ends at its last whole word: the verdict is not
        lost to it.
        """
        content, budget = self.encoder.content, self.options.explain_tokens
        drafts = self._drafts(prompts, lambda _: (PATTERN, budget))
        return sorted_out({q: explain(prompts[q], draft, content) for q, draft in drafts.items()})

    def _read(
        self, prompts: Mapping[Question, Prompt], head: Head | None
    ) -> dict[Question, Outcome]:
        """Read each answer's probability at the places where the answers part, or by a head."""
        trees = [prompt.variant.tree for prompt in prompts.values()]
        ids = [prompt.variant.tree.extend(prompt.ids) for prompt in prompts.values()]
        results: list[Choice | Failure] = []
        if prompts and head is not None:
            results = head.choose(self.engine.embed(ids))
        elif prompts:
            results = self.engine.choose(ids, trees)
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
