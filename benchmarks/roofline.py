"""How much arithmetic the new tokens of a run are, and how much of it the machine can do.

Counted are the multiplications and additions of matrix products: twice the parameters of the layers
for every new token; scores and weighted sums of attention, 4 x heads x head size for every layer,
new token and token that it looks back at; and the output layer once for every position whose logits
are read. Embeddings, norms and softmax are left out, and every expert of a mixture is counted. New
tokens are those that cannot come from the prefix cache: all behind the beginning that the prompts
share, that beginning once if the cache was empty, and the tokens that were written, but the last.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

COUNTED = " ".join((__doc__ or "").split("\n\n")[1].split())


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a model that its arithmetic follows from.

    Attributes:
        layer_parameters: Parameters of all layers, without embeddings and output layer.
        attention: Layers times heads times head size.
        output_parameters: Parameters of the output layer.
    """

    layer_parameters: int
    attention: int
    output_parameters: int

    @classmethod
    def read(cls, folder: Path) -> ModelShape:
        """Read the sizes from a model folder, without loading the weights."""
        from safetensors import safe_open
        from transformers import AutoConfig

        config = AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config()
        head_size = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        layers = 0
        for file in sorted(folder.glob("*.safetensors")):
            with safe_open(file, framework="numpy") as weights:
                for name in weights.keys():  # noqa: SIM118 (it is no dict)
                    if "embed_tokens" not in name and "lm_head" not in name:
                        layers += _product(weights.get_slice(name).get_shape())
        return cls(
            layer_parameters=layers,
            attention=config.num_hidden_layers * config.num_attention_heads * head_size,
            output_parameters=config.hidden_size * config.vocab_size,
        )

    def operations(self, work: NewTokens) -> float:
        """Return the floating-point operations of `work`."""
        return (
            2.0 * self.layer_parameters * work.tokens
            + 4.0 * self.attention * work.looked_back
            + 2.0 * self.output_parameters * work.read
        )


@dataclass(frozen=True)
class NewTokens:
    """The tokens that one run has to compute.

    Attributes:
        tokens: How many.
        looked_back: How many tokens each of them attends to, itself included, added up.
        read: How many positions' logits are read.
    """

    tokens: float
    looked_back: float
    read: float

    @classmethod
    def of(cls, lengths: Sequence[int], *, shared: int, cold: bool, written: int) -> NewTokens:
        """Count them.

        Args:
            lengths: Tokens of each prompt.
            shared: Tokens of the beginning that is computed once; 0 without a prefix cache.
            cold: Whether that beginning must be computed in this run.
            written: Tokens that the model wrote in all rows together.
        """
        # The last written token is never read by the model.
        fed = max(0.0, written / len(lengths) - 1)
        ends = [length + fed for length in lengths]
        beginning = shared if cold else 0
        return cls(
            tokens=sum(ends) - shared * len(ends) + beginning,
            looked_back=sum(map(_triangle, ends))
            - _triangle(shared) * len(ends)
            + _triangle(beginning),
            read=max(len(lengths), written),
        )


def bf16_peak() -> float:
    """Return the most floating-point operations per second that a bfloat16 product reached here.

    Square matrices, large enough that arithmetic dominates; the best of several.
    """
    import torch

    on_gpu = torch.cuda.is_available()
    size, tries = (8192, 20) if on_gpu else (2048, 10)
    a, b = torch.randn(2, size, size, device="cuda" if on_gpu else "cpu").bfloat16()
    best = float("inf")
    for _ in range(tries):
        start = time.perf_counter()
        _ = a @ b
        if on_gpu:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return float(2 * size**3 / best)


def _triangle(length: float) -> float:
    return length * (length + 1) / 2


def _product(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
