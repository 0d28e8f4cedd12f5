"""The seam between judging and a model: token ids in, choices and drafts out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, log
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedTokenizerFast

    from localjudge.tree import AnswerTree

TokenIds = Sequence[int]
State: TypeAlias = "NDArray[np.float32]"


@dataclass(frozen=True, slots=True)
class Choice:
    """How probable the model finds each answer of a tree.

    Attributes:
        log_probs: Natural log of the probability of each answer's deciding tokens, in the order of
            the tree's answers, before any normalisation over the answers.
        reach: Of a fitted head, how far the row lies from those that it was fitted on: above 1 it
            is farther from their mean than any of them. None where the model itself answered.
    """

    log_probs: tuple[float, ...]
    reach: float | None = None

    @property
    def mass(self) -> float | None:
        """Probability that the model put on any answer at all, from 0 to 1.

        None of a head: it says nothing of what else the model would have said.
        """
        if self.reach is not None:
            return None
        return min(1.0, fsum(exp(value) for value in self.log_probs))

    @property
    def probabilities(self) -> tuple[float, ...]:
        """The distribution over the answers; sums to 1."""
        top = max(self.log_probs)
        total = top + log(fsum(exp(value - top) for value in self.log_probs))
        return tuple(exp(value - total) for value in self.log_probs)


@dataclass(frozen=True, slots=True)
class Draft:
    """Text that the model wrote under a pattern.

    Attributes:
        text: The text, decoded without loss.
        ids: Its token ids, without the end-of-sequence token.
        finish_reason: `stop` if the pattern was completed, `length` if the budget ended first.
    """

    text: str
    ids: tuple[int, ...]
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Failure:
    """One prompt for which the engine has no result, and why. The others are not affected."""

    error: str


class Engine(Protocol):
    """A model that can be asked. Results have the length and the order of `prompts`.

    A prompt that cannot be processed is a `Failure` in its place; `EngineError` means that the
    engine as a whole is unusable.

    Attributes:
        name: Short name of the engine, such as `transformers`.
        tokenizer: The model's tokenizer.
        context_length: The most tokens that prompt and output may have together.
        chunk_rows: How many rows it likes to get at once: what a crash can cost, and what a batch
            can be sorted over.
        fingerprint: What a verdict depends on beside the prompt: model, precision, versions.
    """

    name: str
    tokenizer: PreTrainedTokenizerFast
    context_length: int
    chunk_rows: int
    fingerprint: Mapping[str, Any]

    def choose(
        self, prompts: Sequence[TokenIds], trees: Sequence[AnswerTree]
    ) -> list[Choice | Failure]:
        """Read, after each prompt, the probability of each answer of the tree in its place.

        The prompts end where the trees begin: they come from `AnswerTree.extend`.
        """
        ...

    def write(
        self, prompts: Sequence[TokenIds], pattern: str, max_tokens: int
    ) -> list[Draft | Failure]:
        """Continue each prompt, greedily, by text that matches the regular expression `pattern`."""
        ...

    def think(self, prompts: Sequence[TokenIds], max_tokens: int) -> list[Draft | Failure]:
        """Continue each prompt, greedily, by any text, up to the first control token.

        That token is not part of the draft, whose finish reason it makes `stop`.
        """
        ...

    def embed(self, prompts: Sequence[TokenIds]) -> list[State | Failure]:
        """Read the model's last hidden state, behind its final norm, at each prompt's last token.

        It is what the model's last layer turns into the probabilities of the next token: float32,
        shape (hidden size,). The prompts are those of `choose`.
        """
        ...

    def close(self) -> None:
        """Free the model. The engine cannot be used afterwards."""
        ...
