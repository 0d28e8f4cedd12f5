"""The embedded engine: a transformers model on CPU or one GPU.

The prompts of a metric begin alike. What they share is run through the model once, and its keys
and values serve every batch; per row only what is behind it is computed, and its last logits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence, Set
from functools import lru_cache
from inspect import signature
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from localjudge.engines.attention import attend_plainly, share_attention
from localjudge.engines.base import Choice, Draft, Failure, State, TokenIds
from localjudge.engines.batches import FAILED, batches, in_halves, raise_if_dead
from localjudge.engines.drafts import NanWatch, finished_draft
from localjudge.engines.prefix import (
    APART,
    Prefix,
    common,
    distance,
    move_right,
    padded_right,
    shared_beginning,
)
from localjudge.engines.transformers_loading import (
    DTYPES,
    Float32Head,
    check_vocabulary,
    context_length,
    load,
    one_line,
    pick_device,
)
from localjudge.errors import ConfigError, EngineError
from localjudge.tokens import ContentTokenizer

if TYPE_CHECKING:
    from outlines_core import Index

    from localjudge.tree import AnswerTree

_KEPT_PREFIXES = 8  # one for each metric of a usual run
_KEPT_INDEXES = 32  # of patterns: rows with labels of their own would bring ever more
_WORTH_SHARING = 16  # tokens
_WRITING = 8  # writing reads all weights for each token, so its batches may be so much larger


Result = TypeVar("Result")


class TransformersEngine:
    """A causal language model loaded by transformers. Calls from several threads wait in line.

    Args:
        folder: A checked model folder.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        dtype: `auto` keeps the checkpoint's float32, bfloat16 or float16 on a GPU. On a CPU it
            keeps bfloat16 where the CPU has instructions for it. All else becomes float32.
        batch_tokens: The most new tokens, padding included, in one forward pass; by default what
            suits the device.

    Raises:
        ConfigError: an option is out of its range.
        EngineError: the model cannot be loaded, its tokenizer is another model's, or its
            architecture is not one that this engine can run.
    """

    name = "transformers"

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        device: str = "auto",
        dtype: str = "auto",
        batch_tokens: int | None = None,
    ) -> None:
        if dtype not in ("auto", *DTYPES):
            raise ConfigError(f"{dtype!r} is not auto, {', '.join(DTYPES)}", field="dtype")
        if batch_tokens is not None and batch_tokens < 1:
            raise ConfigError(f"{batch_tokens} is not positive", field="batch_tokens")
        path = str(Path(folder).resolve())
        self.device = pick_device(device)
        self.tokenizer, self._model, config = load(path, self.device, dtype)
        self.dtype: torch.dtype = self._model.dtype
        self.batch_tokens = batch_tokens or (2048 if self.device.type == "cpu" else 16_384)
        self.chunk_rows = 64 if self.device.type == "cpu" else 1024
        self.fingerprint: Mapping[str, Any] = {
            "engine": self.name,
            "device": self.device.type,
            "dtype": str(self.dtype).removeprefix("torch."),
        }
        self._content = ContentTokenizer(self.tokenizer)
        self._embeddings = int(self._model.get_input_embeddings().weight.shape[0])
        check_vocabulary(self.tokenizer, self._content.control_ids, self._embeddings, path)
        self._prefixes: list[Prefix] = []
        self._index = lru_cache(_KEPT_INDEXES)(self._new_index)
        self._lock = Lock()
        self._closed = False
        self._check_architecture(path)
        self.context_length = context_length(config, self.tokenizer, path)

    def choose(
        self, prompts: Sequence[TokenIds], trees: Sequence[AnswerTree]
    ) -> list[Choice | Failure]:
        """Read the model's next-token probabilities at every branch of each prompt's tree."""
        asked = [
            (prompt, branch)
            for prompt, tree in zip(prompts, trees, strict=True)
            for branch in tree.branches
        ]
        sequences = [[*prompt, *branch.path] for prompt, branch in asked]

        def read(batch: list[int], prefix: Prefix) -> list[list[float]]:
            logits = self._logits([sequences[index] for index in batch], prefix)
            log_probs = logits.log_softmax(dim=-1).cpu()
            return [
                row[list(asked[index][1].tokens)].tolist()
                for index, row in zip(batch, log_probs, strict=True)
            ]

        values = iter(self._in_batches(sequences, 0, self.batch_tokens, read))
        return [_joined(tree, [next(values) for _ in tree.branches]) for tree in trees]

    def embed(self, prompts: Sequence[TokenIds]) -> list[State | Failure]:
        """Read what the model's last layer is given behind each prompt."""

        def read(batch: list[int], prefix: Prefix) -> list[State | Failure]:
            with self._head.keeping_states() as states:
                self._logits([prompts[index] for index in batch], prefix)
            return [*states[0][:, -1].cpu().numpy()]

        return self._in_batches(prompts, 0, self.batch_tokens, read)

    def write(
        self, prompts: Sequence[TokenIds], pattern: str, max_tokens: int
    ) -> list[Draft | Failure]:
        """Continue each prompt greedily under outlines' logits processor."""
        return self._drafts(prompts, max_tokens, {self._content.stop_id}, self._index(pattern))

    def think(self, prompts: Sequence[TokenIds], max_tokens: int) -> list[Draft | Failure]:
        """Continue each prompt greedily, up to the first control token."""
        stops = {*self._content.control_ids, self._content.stop_id}
        return self._drafts(prompts, max_tokens, stops)

    def _drafts(
        self,
        prompts: Sequence[TokenIds],
        max_tokens: int,
        stops: Set[int],
        index: Index | None = None,
    ) -> list[Draft | Failure]:
        def continued(batch: list[int], prefix: Prefix) -> list[Draft | Failure]:
            from outlines.backends.outlines_core import OutlinesCoreLogitsProcessor

            watch = NanWatch()
            masks = [] if index is None else [OutlinesCoreLogitsProcessor(index, "torch")]
            rows = self._generate(
                [prompts[place] for place in batch],
                prefix,
                max_new_tokens=max_tokens,
                pad_token_id=self._content.stop_id,
                eos_token_id=sorted(stops),
                logits_processor=[watch, *masks],
            ).tolist()
            return [
                Failure("the model's logits are not numbers (NaN)")
                if broken
                else finished_draft(self._content, row, stops)
                for row, broken in zip(rows, watch.broken(), strict=True)
            ]

        return self._in_batches(prompts, max_tokens, _WRITING * self.batch_tokens, continued)

    def close(self) -> None:
        """Free the model and its memory. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._prefixes.clear()
            self._index.cache_clear()
            del self._model, self._head
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _in_batches(
        self,
        sequences: Sequence[TokenIds],
        further: int,
        limit: int,
        run: Callable[[list[int], Prefix], Sequence[Result | Failure]],
    ) -> list[Result | Failure]:
        """Run batches of indices of like length, each with `further` tokens; keep the order.

        Of what the model cannot run, halves are tried, down to single sequences.
        """
        results: dict[int, Result | Failure] = {}
        with self._lock:
            if self._closed:
                raise EngineError("the engine is closed")
            for index, sequence in enumerate(sequences):
                if not sequence:
                    results[index] = Failure("the prompt is empty")
                elif not 0 <= min(sequence) <= max(sequence) < self._embeddings:
                    results[index] = Failure("the model has no embedding for a token of the prompt")
            sound = [index for index in range(len(sequences)) if index not in results]
            if sound:
                try:
                    prefix = self._shared_prefix([sequences[index] for index in sound])
                except FAILED as error:
                    raise_if_dead(error)
                    prefix = Prefix((), ())  # each sequence then shows whether it is the one
                lengths = {i: len(sequences[i]) - prefix.length + further for i in sound}
                for batch in batches(lengths, limit):
                    outcomes = in_halves(batch, lambda part: run(part, prefix))
                    results.update(zip(batch, outcomes, strict=True))
        return [results[index] for index in range(len(sequences))]

    @torch.inference_mode()
    def _logits(self, sequences: Sequence[TokenIds], prefix: Prefix) -> torch.Tensor:
        """Return the logits behind each sequence's last token, float32 (rows, vocabulary)."""
        rests = [sequence[prefix.length :] for sequence in sequences]
        last = torch.tensor([len(rest) - 1 for rest in rests], device=self.device)
        with self._head.reading(last):
            output = self._model(
                input_ids=padded_right(rests).to(self.device),
                past_key_values=prefix.cache(),
                use_cache=True,
            )
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits

    @torch.inference_mode()
    def _generate(
        self, sequences: Sequence[TokenIds], prefix: Prefix, **settings: Any
    ) -> torch.Tensor:
        """Return the ids that follow greedily, (rows, most new tokens)."""
        # Generating wants the last tokens in one column. All before them is computed padded on the
        # right, so that each token's column is its position, and is then moved there.
        width = max(len(sequence) for sequence in sequences)
        padding = torch.tensor([width - len(sequence) for sequence in sequences])
        cache = prefix.cache(rows=len(sequences))
        if width - 1 > prefix.length:
            known = padded_right([sequence[prefix.length : -1] for sequence in sequences])
            with self._head.reading(torch.zeros_like(padding).to(self.device)):
                self._model(input_ids=known.to(self.device), past_key_values=cache, use_cache=True)
        move_right(cache, padding.to(self.device))
        mask = torch.arange(width) >= padding[:, None]
        ids = torch.zeros((len(sequences), width), dtype=torch.long)
        ids[mask] = torch.tensor([token for sequence in sequences for token in sequence])
        # Eager, because outlines compiles its mask kernel, which would need a C++ compiler.
        with torch.compiler.set_stance("force_eager"):
            output: torch.Tensor = self._model.generate(
                input_ids=ids.to(self.device),
                attention_mask=mask.long().to(self.device),
                past_key_values=cache,
                do_sample=False,
                **settings,
            )
        return output[:, width:]

    @torch.inference_mode()
    def _shared_prefix(self, sequences: Sequence[TokenIds]) -> Prefix:
        """Return keys and values of the beginning that all sequences share."""
        shared = shared_beginning(sequences)
        known = max(
            (prefix.cut(common(prefix.ids, shared)) for prefix in self._prefixes),
            key=lambda prefix: prefix.length,
            default=Prefix((), ()),
        )
        # Rows often share a few tokens more by chance: not worth a new prefix.
        if len(sequences) == 1 or len(shared) - known.length < _WORTH_SHARING:
            return known
        cache = known.cache(rows=1)
        ids = torch.tensor([shared[known.length :]], device=self.device)
        with self._head.reading(torch.tensor([0], device=self.device)):
            self._model(input_ids=ids, past_key_values=cache, use_cache=True)
        computed = Prefix(shared, tuple((x.keys, x.values) for x in cache.layers))
        self._prefixes = [*self._prefixes[1 - _KEPT_PREFIXES :], computed]
        return computed

    def _new_index(self, pattern: str) -> Index:
        """Return outlines' index of a pattern."""
        from outlines_core import Index

        return Index(pattern, self._content.vocabulary)

    def _check_architecture(self, path: str) -> None:
        """Run three short sequences by way of a shared prefix, and each plainly; compare.

        A model that keeps a state other than keys and values, or that looks ahead, fails here.
        """
        draw = random.Random(0)
        ids = sorted(set(range(self._embeddings)) - self._content.control_ids)
        beginning = draw.choices(ids, k=_WORTH_SHARING + 2)
        sequences = [beginning + draw.choices(ids, k=count) for count in (3, 9, 14)]
        if "past_key_values" not in signature(self._model.forward).parameters:
            raise self._unsupported(path, "it keeps no keys and values")
        # A small model that looks ahead can be within the bounds of half precision.
        attention = {getattr(module, "is_causal", None) for module in self._model.modules()}
        if False in attention and True not in attention:
            raise self._unsupported(path, "it looks ahead")
        try:
            with torch.inference_mode():
                plain = torch.cat(
                    [
                        self._model(
                            input_ids=torch.tensor([sequence], device=self.device), use_cache=False
                        ).logits[:, -1]
                        for sequence in sequences
                    ]
                ).float()
            self._head = Float32Head(self._model.get_output_embeddings())
            self._model.set_output_embeddings(self._head)
            if share_attention(self._model) and self._differ(sequences, plain):
                attend_plainly(self._model)
            if problem := self._differ(sequences, plain):
                raise self._unsupported(path, problem)
        except torch.OutOfMemoryError as error:
            raise EngineError(f"no memory is left to run the model: {one_line(error)}") from error
        except EngineError:
            raise
        except Exception as error:  # a model that is built otherwise can raise anything
            raise self._unsupported(path, one_line(error)) from error

    def _differ(self, sequences: Sequence[TokenIds], plain: torch.Tensor) -> str:
        """Say how results by way of a shared prefix differ from plain ones, or nothing."""
        written: list[torch.Tensor] = []

        def keep(ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
            written.append(logits)
            return logits

        try:
            prefix = self._shared_prefix(sequences)
            self._generate(sequences, prefix, max_new_tokens=1, logits_processor=[keep])
            ways = (self._logits(sequences, prefix), *written)
            apart = max(distance(logits, plain) for logits in ways)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a model that is built otherwise can raise anything
            return one_line(error)
        finally:
            self._prefixes.clear()
        return (
            f"its results depend on the batch, by {apart:.2g}" if apart > APART[self.dtype] else ""
        )

    def _unsupported(self, path: str, why: str) -> EngineError:
        kind = self._model.config.model_type
        return EngineError(
            f"this model's architecture ({kind}) is not supported by the engine transformers; "
            f"use vllm ({why})",
            path=path,
        )


def _joined(tree: AnswerTree, values: Sequence[list[float] | Failure]) -> Choice | Failure:
    """Return the choice that was read at all branches of a tree, or the first failure there."""
    failed = next((value for value in values if isinstance(value, Failure)), None)
    return failed or tree.choice([value for value in values if not isinstance(value, Failure)])
