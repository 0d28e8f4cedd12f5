"""The embedded engine: a transformers model on CPU or one GPU.

The prompts of a metric begin alike. What they share is run through the model once, and its keys
and values serve every batch; per row only the part behind it is computed, and of that only the
last position's logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.cache_utils import DynamicLayer
from transformers.utils import logging

from localjudge.engines.base import Choice, Draft, Failure, TokenIds
from localjudge.engines.drafts import finished_draft
from localjudge.errors import ConfigError, EngineError
from localjudge.tokens import ContentTokenizer

if TYPE_CHECKING:
    from outlines.backends.outlines_core import OutlinesCoreLogitsProcessor

    from localjudge.tree import AnswerTree

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_KEPT_PREFIXES = 8  # one for each metric of a usual run
_WORTH_SHARING = 16  # tokens
_HEAD_ROWS = 16_384
_WRITING = 8  # writing reads all weights for each token, so its batches may be so much larger


@contextmanager
def _as_engine_errors() -> Iterator[None]:
    """Say in our terms what torch raises where memory ends or a device fails."""
    try:
        yield
    except RuntimeError as error:
        raise EngineError(f"the model cannot run: {error}") from error


class TransformersEngine:
    """A causal language model loaded by transformers.

    Args:
        folder: A checked model folder.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        dtype: `auto` keeps the checkpoint's, or takes float32 where the device is slow at it.
        batch_tokens: The most new tokens, padding included, in one forward pass; by default what
            suits the device.

    Raises:
        ConfigError: an option is out of its range.
        EngineError: the model cannot be loaded.
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
        if dtype not in ("auto", *_DTYPES):
            raise ConfigError(f"{dtype!r} is not auto, {', '.join(_DTYPES)}", field="dtype")
        if batch_tokens is not None and batch_tokens < 1:
            raise ConfigError(f"{batch_tokens} is not positive", field="batch_tokens")
        path = str(Path(folder).resolve())
        logging.disable_progress_bar()
        self.device = _device(device)
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(
                path, local_files_only=True, trust_remote_code=False
            )
            config = AutoConfig.from_pretrained(
                path, local_files_only=True, trust_remote_code=False
            )
            self.dtype = _dtype(dtype, self.device, config)
            self._model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                path,
                config=config,
                dtype=self.dtype,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise EngineError(f"transformers cannot load the model: {error}", path=path) from error
        self._model.to(self.device).eval()
        # What the model's authors set for chatting (temperature, penalties) is not for judging.
        self._model.generation_config = GenerationConfig()
        self._model.set_output_embeddings(Float32Head(self._model.get_output_embeddings()))
        text_config = config.get_text_config(decoder=True)
        self.context_length = int(text_config.max_position_embeddings)
        self.batch_tokens = batch_tokens or (1024 if self.device.type == "cpu" else 16_384)
        self.chunk_rows = 64 if self.device.type == "cpu" else 1024
        self.fingerprint: Mapping[str, Any] = {
            "engine": self.name,
            "device": self.device.type,
            "dtype": str(self.dtype).removeprefix("torch."),
        }
        self._content = ContentTokenizer(self.tokenizer)
        self._prefixes: list[Prefix] = []
        self._processors: dict[str, OutlinesCoreLogitsProcessor] = {}

    @_as_engine_errors()
    def choose(
        self, prompts: Sequence[TokenIds], trees: Sequence[AnswerTree]
    ) -> list[Choice | Failure]:
        """Read the model's next-token probabilities at every branch of each prompt's tree."""
        asked = [
            (p, branch) for p, tree in zip(prompts, trees, strict=True) for branch in tree.branches
        ]
        sequences = [[*prompt, *branch.path] for prompt, branch in asked]
        read: list[list[float]] = [[] for _ in asked]
        for batch, log_probs in self._forward(sequences):
            for index, row in zip(batch, log_probs, strict=True):
                read[index] = row[list(asked[index][1].tokens)].tolist()
        values = iter(read)
        return [tree.choice([next(values) for _ in tree.branches]) for tree in trees]

    def write(
        self, prompts: Sequence[TokenIds], pattern: str, max_tokens: int
    ) -> list[Draft | Failure]:
        """Continue each prompt greedily under outlines' logits processor."""
        if not prompts:
            return []
        processor = self._processor(pattern)
        prefix = self._shared_prefix(prompts)
        drafts: dict[int, Draft] = {}
        lengths = [len(prompt) - prefix.length + max_tokens for prompt in prompts]
        for batch in self._batches(lengths, _WRITING * self.batch_tokens):
            processor.reset()
            ids, mask = self._pad([prompts[index] for index in batch], prefix)
            # Eager, because outlines compiles its mask kernel, which would need a C++ compiler.
            with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
                output = self._model.generate(
                    input_ids=ids,
                    attention_mask=mask,
                    past_key_values=prefix.cache(rows=len(batch)),
                    max_new_tokens=max_tokens,
                    do_sample=False,
                    pad_token_id=self._content.stop_id,
                    eos_token_id=self._content.stop_id,
                    logits_processor=[processor],
                )
            for index, row in zip(batch, output[:, ids.shape[1] :].tolist(), strict=True):
                drafts[index] = finished_draft(self._content, row, {self._content.stop_id})
        return [drafts[index] for index in range(len(prompts))]

    def close(self) -> None:
        """Free the model and the GPU memory it held."""
        self._prefixes.clear()
        self._processors.clear()
        del self._model
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _forward(self, sequences: Sequence[list[int]]) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Yield batches of indices with their log-probabilities, float32 (batch, vocabulary)."""
        if not sequences:
            return
        prefix = self._shared_prefix(sequences)
        lengths = [len(sequence) - prefix.length for sequence in sequences]
        for batch in self._batches(lengths, self.batch_tokens):
            ids, mask = self._pad([sequences[index] for index in batch], prefix)
            with torch.inference_mode():
                logits = self._model(
                    input_ids=ids[:, prefix.length :],
                    attention_mask=mask,
                    position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0)[:, prefix.length :],
                    past_key_values=prefix.cache(),
                    use_cache=True,
                    logits_to_keep=1,
                ).logits[:, -1]
                yield batch, logits.float().log_softmax(dim=-1).cpu()

    def _shared_prefix(self, sequences: Sequence[TokenIds]) -> Prefix:
        """Return keys and values of the beginning that all sequences share."""
        longest = min(len(sequence) for sequence in sequences) - 1  # each keeps a token to run
        # The smallest and the largest of sorted sequences differ first where any two do.
        low, high = min(sequences, key=tuple), max(sequences, key=tuple)
        shared = tuple(low[: min(_common(low, high), longest)])
        known = max(
            (prefix.cut(_common(prefix.ids, shared)) for prefix in self._prefixes),
            key=lambda prefix: prefix.length,
            default=Prefix((), ()),
        )
        # Rows often share a few tokens more by chance: not worth a new prefix.
        if len(sequences) == 1 or len(shared) - known.length < _WORTH_SHARING:
            return known
        ids = torch.tensor([shared[known.length :]], device=self.device)
        cache = known.cache(rows=1)
        with torch.inference_mode():
            self._model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        computed = Prefix(shared, tuple((x.keys, x.values) for x in cache.layers))
        self._prefixes = [*self._prefixes[1 - _KEPT_PREFIXES :], computed]
        return computed

    @staticmethod
    def _batches(lengths: Sequence[int], limit: int) -> Iterator[list[int]]:
        """Group indices of like length; length of the longest times number is within bounds."""
        batch: list[int] = []
        for index in sorted(range(len(lengths)), key=lengths.__getitem__):
            if batch and lengths[index] * (len(batch) + 1) > limit:
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    def _pad(
        self, sequences: Sequence[TokenIds], prefix: Prefix
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and mask, (rows, width), padded between the prefix and the rest.

        So all last tokens stand in one column, and the prefix in the first ones.
        """
        start = prefix.length
        width = max(len(sequence) for sequence in sequences)
        ids = torch.zeros((len(sequences), width), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, sequence in enumerate(sequences):
            rest = width - len(sequence) + start
            ids[row, :start] = torch.tensor(sequence[:start])
            ids[row, rest:] = torch.tensor(sequence[start:])
            mask[row, :start] = mask[row, rest:] = 1
        return ids.to(self.device), mask.to(self.device)

    def _processor(self, pattern: str) -> OutlinesCoreLogitsProcessor:
        """Return outlines' logits processor for a pattern; its index is built once."""
        from outlines.backends.outlines_core import OutlinesCoreLogitsProcessor
        from outlines_core import Index

        if pattern not in self._processors:
            index = Index(pattern, self._content.vocabulary)
            self._processors[pattern] = OutlinesCoreLogitsProcessor(index, "torch")
        return self._processors[pattern]


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of prompts, with its keys and values in every layer.

    Attributes:
        ids: The token ids.
        layers: Keys and values of each layer, (1, heads, tokens, head size).
    """

    ids: tuple[int, ...]
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.ids)

    def cut(self, length: int) -> Prefix:
        """Return the first `length` tokens of it; keys and values are shared, not copied."""
        layers = tuple((k[..., :length, :], v[..., :length, :]) for k, v in self.layers)
        return Prefix(self.ids[:length], layers if length else ())

    def cache(self, *, rows: int | None = None) -> DynamicCache:
        """Return a cache that begins with this prefix in every row.

        With `rows` it grows by what is computed, as generating needs it; without, it is for one
        forward pass and forgets each layer's states at once, which saves most of the memory.
        """
        # Without a configuration every layer keeps all positions, also where a sliding window
        # reads only the last: the mask is the model's own, and a prefix can be cut anywhere.
        cache = DynamicCache()
        for keys, values in self.layers:
            layer = PrefixLayer() if rows is None else DynamicLayer()
            layer.lazy_initialization(keys, values)
            layer.keys = keys.expand(rows or 1, -1, -1, -1)
            layer.values = values.expand(rows or 1, -1, -1, -1)
            cache.layers.append(layer)
        return cache


class PrefixLayer(DynamicLayer):
    """A cache layer that shows its prefix to every row, and forgets what comes behind it."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return prefix and new states joined; keep the prefix alone."""
        rows = len(key_states)
        return (
            torch.cat([self.keys.expand(rows, -1, -1, -1), key_states], dim=-2),
            torch.cat([self.values.expand(rows, -1, -1, -1), value_states], dim=-2),
        )


class Float32Head(nn.Module):
    """The model's last layer, computed in float32: in bfloat16 the logits of labels tie."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = head.weight, head.bias

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return float32 logits; the weight is converted piece by piece, to save memory."""
        hidden = hidden.float()
        pieces = [hidden @ part.float().T for part in torch.split(self.weight, _HEAD_ROWS)]
        logits = torch.cat(pieces, dim=-1)
        return logits if self.bias is None else logits + self.bias.float()


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many ids two sequences have in common at their beginning."""
    return next(
        (index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
        min(len(a), len(b)),
    )


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"{name!r} is not a device", field="device") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("there is no CUDA device here", field="device", hint="use `cpu`")
    return device


def _dtype(name: str, device: torch.device, config: PretrainedConfig) -> torch.dtype:
    if name != "auto":
        return _DTYPES[name]
    stored: torch.dtype = (
        config.get_text_config(decoder=True).dtype or config.dtype or torch.float32
    )
    if stored == torch.float32 or device.type != "cpu":
        return stored
    # On a CPU half precision pays only where it has instructions for bfloat16.
    return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32
