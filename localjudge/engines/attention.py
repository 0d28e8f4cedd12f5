"""Attention to a beginning that all rows share: its keys are read once for all rows of a batch.

Each query attends to the shared keys and to its own row's apart. The softmax over both is the mean
of the two results, weighted by the sums of their exponentials. For the shared part all queries of
a batch stand one behind the other, so it is one large product in place of one for each row.
Source: Juravsky et al. 2024, "Hydragen", arXiv 2402.05099, section 3.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

_SHARED = "localjudge_shared_prefix"

# What torch's scaled_dot_product_attention calls on a CPU; it also returns the sums' logarithms.
_attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def share_attention(model: PreTrainedModel) -> bool:
    """Let a model attend to shared keys in this way, and say whether it does.

    Not where its attention is not torch's own, or its code is not built to have it exchanged.
    """
    if model.device.type != "cpu" or model.config._attn_implementation != "sdpa":
        return False
    AttentionInterface.register(_SHARED, _shared_attention)
    AttentionMaskInterface.register(_SHARED, _mask)
    model.set_attn_implementation(_SHARED)
    return bool(model.config._attn_implementation == _SHARED)


def attend_plainly(model: PreTrainedModel) -> None:
    """Undo `share_attention`."""
    model.set_attn_implementation("sdpa")


def _shared_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Return what each query finds, (rows, queries, heads, head size).

    Args:
        module: The attention layer.
        query: (rows, heads, queries, head size).
        key: (rows, key heads, shared + queries, head size), the shared ones alike in every row.
        value: Likewise.
        attention_mask: None for plain causal attention; all else is left to torch.
        scaling: What scores are multiplied by.
        **kwargs: Passed on.
    """
    rows, heads, width, size = query.shape
    shared = key.shape[2] - width
    if attention_mask is not None or not shared:
        plain: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
        return plain
    group = heads // key.shape[1]
    chained = query.transpose(1, 2).reshape(1, rows * width, heads, size).transpose(1, 2)
    of_shared, sum_shared = _attend(
        chained,
        key[:1, :, :shared].repeat_interleave(group, dim=1),
        value[:1, :, :shared].repeat_interleave(group, dim=1),
        scale=scaling,
    )
    of_own, sum_own = _attend(
        query,
        key[:, :, shared:].repeat_interleave(group, dim=1),
        value[:, :, shared:].repeat_interleave(group, dim=1),
        is_causal=True,
        scale=scaling,
    )
    of_shared = of_shared.transpose(1, 2).reshape(rows, width, heads, size)
    sum_shared = sum_shared.reshape(heads, rows, width).permute(1, 2, 0)
    weight = torch.sigmoid(sum_shared - sum_own.transpose(1, 2)).to(query.dtype)
    return torch.lerp(of_own.transpose(1, 2), of_shared, weight.unsqueeze(-1)), None


def _mask(*, mask_function: Any, attention_mask: torch.Tensor | None, **kwargs: Any) -> Any:
    """Return None for what is plainly causal, and torch's mask for all else."""
    if attention_mask is None and mask_function is causal_mask_function:
        return None
    kwargs["allow_is_causal_skip"] = False  # None has its own meaning here
    return sdpa_mask(mask_function=mask_function, attention_mask=attention_mask, **kwargs)
