"""An engine that outlives its own death: it is opened again, and a deadly prompt is singled out."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from localjudge.engines.base import Choice, Draft, Engine, Failure, State, TokenIds
from localjudge.errors import EngineError

if TYPE_CHECKING:
    from localjudge.tree import AnswerTree

Question = TypeVar("Question")
Result = TypeVar("Result")

_PARTS = 16  # 1,024 prompts, then 64, 4, 1: a deadly one costs four deaths
_IN_A_ROW = 6
_IN_ALL = 20

logger = logging.getLogger(__name__)


class SupervisedEngine:
    """Passes every call on to an engine, and opens another when that one dies.

    The call in which it died is made again in smaller batches, each of them smaller still if it
    dies in that one too. A prompt that is deadly on its own is a `Failure`; the others get their
    results. An engine that dies six times without finishing a batch, or twenty times in all, is
    given up.

    Args:
        open_engine: Opens the engine, the first time and each further time.

    Attributes:
        engine: The engine that is at work now.

    Raises:
        EngineError: from every method but `close`: the engine is given up, or cannot be opened.
    """

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._open = open_engine
        self.engine = open_engine()
        self.name = self.engine.name
        self.tokenizer = self.engine.tokenizer
        self.context_length = self.engine.context_length
        self.chunk_rows = self.engine.chunk_rows
        self.fingerprint = self.engine.fingerprint
        self._deaths = 0
        self._closed = False

    def choose(
        self, prompts: Sequence[TokenIds], trees: Sequence[AnswerTree]
    ) -> list[Choice | Failure]:
        """Do what the engine's `choose` does."""
        return self._ask(
            [*zip(prompts, trees, strict=True)],
            lambda engine, batch: engine.choose([p for p, _ in batch], [tree for _, tree in batch]),
        )

    def write(
        self, prompts: Sequence[TokenIds], pattern: str, max_tokens: int
    ) -> list[Draft | Failure]:
        """Do what the engine's `write` does."""
        return self._ask(prompts, lambda engine, batch: engine.write(batch, pattern, max_tokens))

    def think(self, prompts: Sequence[TokenIds], max_tokens: int) -> list[Draft | Failure]:
        """Do what the engine's `think` does."""
        return self._ask(prompts, lambda engine, batch: engine.think(batch, max_tokens))

    def embed(self, prompts: Sequence[TokenIds]) -> list[State | Failure]:
        """Do what the engine's `embed` does."""
        return self._ask(prompts, lambda engine, batch: engine.embed(batch))

    def close(self) -> None:
        """Free the model. It is not opened again."""
        self._closed = True
        self.engine.close()

    def _ask(
        self,
        questions: Sequence[Question],
        ask: Callable[[Engine, Sequence[Question]], list[Result | Failure]],
    ) -> list[Result | Failure]:
        if self._closed:
            raise EngineError("the engine is closed")
        results: list[Result | Failure] = []
        # Batches yet to be asked, and whether the engine has died of their prompts before.
        waiting: deque[tuple[Sequence[Question], bool]] = deque([(questions, False)])
        in_a_row = 0
        while waiting:
            batch, suspected = waiting.popleft()
            try:
                results += ask(self.engine, batch)
                in_a_row = 0
                continue
            except EngineError as error:
                # The error itself is not kept: with it, all that the dead engine held would be.
                problem = error.problem
            in_a_row += 1
            self._reopen(problem, in_a_row)
            if len(batch) == 1 and suspected:
                results.append(Failure(f"the engine died of this prompt: {problem}"))
            else:
                size = max(1, len(batch) // _PARTS)
                parts = [batch[start : start + size] for start in range(0, len(batch), size)]
                waiting.extendleft((part, True) for part in reversed(parts))
        return results

    def _reopen(self, problem: str, in_a_row: int) -> None:
        self._deaths += 1
        if in_a_row >= _IN_A_ROW or self._deaths >= _IN_ALL:
            times = f"{in_a_row} times in a row" if in_a_row >= _IN_A_ROW else f"{_IN_ALL} times"
            raise EngineError(f"the engine died {times}, the last time of: {problem}")
        logger.warning("the engine died and is opened again: %s", problem)
        self.engine.close()
        self.engine = self._open()
        self.context_length = self.engine.context_length
