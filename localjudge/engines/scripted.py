"""An engine without a model, for tests of one's own code around localjudge.

It answers by a function that you give, or, without one, by a hash of the prompt: the same prompt
always gets the same answer. What it says about a model is nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from math import log
from typing import TYPE_CHECKING, Any

from localjudge.engines.base import Choice, Draft, Failure, State, TokenIds

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from localjudge.tree import AnswerTree

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class ScriptedEngine:
    """Answers by script instead of by a model.

    Args:
        choose: Given the prompt as text and the number of answers, returns a probability for each
            answer (they need not sum to 1: the rest is mass on no answer), or a `Failure`. An
            exception that it raises leaves `choose` as it is.
        write: Given the prompt as text, returns the text to write, a `Draft` or a `Failure`. It
            writes the model's thoughts too, where those are asked for.
        tokenizer: Defaults to `byte_tokenizer()`, one token a byte.
        context_length: The most tokens that prompt and output may have together.
    """

    name = "scripted"
    chunk_rows = 1024

    def __init__(
        self,
        choose: Callable[[str, int], Sequence[float] | Failure] | None = None,
        write: Callable[[str], str | Draft | Failure] | None = None,
        *,
        tokenizer: PreTrainedTokenizerFast | None = None,
        context_length: int = 32_768,
    ) -> None:
        self.tokenizer = tokenizer if tokenizer is not None else byte_tokenizer()
        self.context_length = context_length
        self.fingerprint: Mapping[str, Any] = {"engine": self.name}
        self._choose = choose
        self._write = write

    def choose(
        self, prompts: Sequence[TokenIds], trees: Sequence[AnswerTree]
    ) -> list[Choice | Failure]:
        """Answer each prompt by the script, or by a hash of its ids."""
        if self._choose is None:
            return [_by_hash(p, tree.size) for p, tree in zip(prompts, trees, strict=True)]
        results: list[Choice | Failure] = []
        for prompt, tree in zip(prompts, trees, strict=True):
            said = self._choose(self.tokenizer.decode(list(prompt)), tree.size)
            if isinstance(said, Failure):
                results.append(said)
            else:
                results.append(Choice(tuple(log(max(value, 1e-30)) for value in said)))
        return results

    def write(
        self, prompts: Sequence[TokenIds], pattern: str, max_tokens: int
    ) -> list[Draft | Failure]:
        """Write what the script says, cut at `max_tokens`; the pattern is not applied."""
        return self.think(prompts, max_tokens)

    def think(self, prompts: Sequence[TokenIds], max_tokens: int) -> list[Draft | Failure]:
        """Think what the script says, cut at `max_tokens`."""
        if self._write is None:
            raise NotImplementedError("this ScriptedEngine was made without `write`")
        results: list[Draft | Failure] = []
        for prompt in prompts:
            said = self._write(self.tokenizer.decode(list(prompt)))
            if isinstance(said, str):
                ids = self.tokenizer.encode(said, add_special_tokens=False)
                reason = "length" if len(ids) > max_tokens else "stop"
                ids = ids[:max_tokens]
                said = Draft(self.tokenizer.decode(ids), tuple(ids), reason)
            results.append(said)
        return results

    def embed(self, prompts: Sequence[TokenIds]) -> list[State | Failure]:
        """Return 16 numbers that a hash of the ids makes: the same prompt gives the same ones."""
        import numpy as np

        seeds = (
            blake2b(array("I", prompt).tobytes(), digest_size=8).digest() for prompt in prompts
        )
        sources = (np.random.default_rng(int.from_bytes(seed)) for seed in seeds)
        return [source.normal(size=16).astype(np.float32) for source in sources]

    def close(self) -> None:
        """Do nothing: there is no model to free."""


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token a byte, ChatML's control tokens and its template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    wrapped.chat_template = CHATML
    return wrapped


def _by_hash(prompt: TokenIds, size: int) -> Choice:
    seed = blake2b(array("I", prompt).tobytes(), digest_size=8).digest()
    weights = [1 + (seed[index % 8] * (index + 1) * 97) % 251 for index in range(size)]
    total = sum(weights)
    return Choice(tuple(log(weight / total) for weight in weights))
