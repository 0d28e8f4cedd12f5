"""The beginning that prompts share: computed once, shown to every row behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

# How far results by way of a prefix may be from plain ones, relative to their spread. Of models
# that work, float32 gives 1e-5 at most, half precision 0.04.
APART = {torch.float32: 1e-3, torch.bfloat16: 0.2, torch.float16: 0.2}


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


def shared_beginning(sequences: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the ids with which all sequences begin, short of each one's last."""
    longest = min(len(sequence) for sequence in sequences) - 1
    # The smallest and the largest of sorted sequences differ first where any two do.
    low, high = min(sequences, key=tuple), max(sequences, key=tuple)
    return tuple(low[: min(common(low, high), longest)])


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many ids two sequences have in common at their beginning."""
    return next(
        (index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
        min(len(a), len(b)),
    )


def padded_right(sequences: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return ids, (rows, width). No causal model sees what stands behind a row's own tokens."""
    rows = [torch.tensor(sequence, dtype=torch.long) for sequence in sequences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def move_right(cache: DynamicCache, by: torch.Tensor) -> None:
    """Move the states of each row to the right by its own number of columns, `by`, (rows,).

    What stood at the end of a row, padding, comes to its beginning. Distances between columns stay
    those between positions, as sliding windows need it.
    """
    for layer in cache.layers:
        columns = torch.arange(layer.keys.shape[-2], device=by.device)
        source = ((columns - by[:, None]) % len(columns))[:, None, :, None]
        layer.keys = torch.take_along_dim(layer.keys, source, dim=-2)
        layer.values = torch.take_along_dim(layer.values, source, dim=-2)


def distance(logits: torch.Tensor, plain: torch.Tensor) -> float:
    """Return how far two results are apart, relative to the spread of the plain one."""
    # Some models forbid tokens by logits of minus infinity; NaN is no question of architecture.
    a, b = (x.log_softmax(dim=-1).nan_to_num(0.0).clamp(min=-100) for x in (logits, plain))
    return float((a - b).norm() / (b - b.mean()).norm().clamp(min=1e-6))
