"""What the small files of a model folder say about its weights and about where a text ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localjudge.errors import EngineError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def read_config(file: Path) -> dict[str, Any]:
    """Read a JSON object; a file that is not there is an empty one.

    Raises:
        EngineError: the file is damaged.
    """
    if not file.exists():
        return {}
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise EngineError(f"damaged: {error}", path=file) from None


def stored_dtype(config: Mapping[str, Any]) -> str | None:
    """Return the type of the weights, such as `bfloat16`, by the model's configuration."""
    return next(
        (
            str(part[key])
            for part in _parts(config)
            for key in ("dtype", "torch_dtype")
            if part.get(key)
        ),
        None,
    )


def stop_ids(folder: Path, tokenizer: PreTrainedTokenizerFast) -> frozenset[int]:
    """Return every id that ends a text by any of the files: they often disagree."""
    found = {tokenizer.eos_token_id}
    for name in ("config.json", "generation_config.json"):
        for part in _parts(read_config(folder / name)):
            ids = part.get("eos_token_id")
            found.update(ids if isinstance(ids, list) else [ids])
    return frozenset(found - {None})


def _parts(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the configuration and, of a model that does more than text, its part about text."""
    return config, config.get("text_config") or {}
