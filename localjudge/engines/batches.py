"""Batches for a model that runs in this process, and what to do where one cannot be run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch

from localjudge.engines.base import Failure
from localjudge.engines.transformers_loading import one_line
from localjudge.errors import EngineError

FAILED = (RuntimeError, IndexError)  # what torch raises in a forward pass, out of memory too

Result = TypeVar("Result")


def batches(lengths: Mapping[int, int], limit: int) -> Iterator[list[int]]:
    """Group indices of like length; length of the longest times number is within bounds."""
    batch: list[int] = []
    for index in sorted(lengths, key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > limit:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def in_halves(
    batch: list[int], run: Callable[[list[int]], Sequence[Result | Failure]]
) -> Sequence[Result | Failure]:
    """Run a batch; where that fails, its halves; a single one that fails is a `Failure`."""
    try:
        return run(batch)
    except FAILED as error:
        raise_if_dead(error)
        problem = one_line(error)  # with the error itself, the tensors of its frames would be kept
    if len(batch) == 1:
        return [Failure(f"the model cannot run this prompt: {problem}")]
    middle = len(batch) // 2
    return [*in_halves(batch[:middle], run), *in_halves(batch[middle:], run)]


def raise_if_dead(error: Exception) -> None:
    """Raise EngineError for an error after which the device does no more work."""
    if isinstance(error, torch.AcceleratorError) or "CUDA error" in str(error):
        raise EngineError(f"the device failed: {one_line(error)}") from error
