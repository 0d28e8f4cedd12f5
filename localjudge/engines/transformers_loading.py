"""Loading a model into transformers: device and precision, whole weights, and a head to read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from textwrap import shorten
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from localjudge.errors import ConfigError, EngineError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_HEAD_ROWS = 16_384
_NAMED = 5  # tensors in an error
_LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")
_CONTEXT_FIELDS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
)
_ROPE_BY_LENGTH = ("longrope", "dynamic")
_LONGEST_CONTEXT = 1 << 31  # transformers writes "unknown" as a number far beyond it


class Float32Head(nn.Module):
    """The model's last layer, computed in float32: in bfloat16 the logits of labels tie."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = head.weight, head.bias
        # Converting the weight anew for every token costs a CPU more than anything else in writing;
        # a GPU does it in no time, and its memory is dear.
        self._float32 = head.weight.detach().float() if head.weight.device.type == "cpu" else None
        self._columns: torch.Tensor | None = None
        self._states: list[torch.Tensor] | None = None

    @contextmanager
    def reading(self, columns: torch.Tensor) -> Iterator[None]:
        """Within it, compute one column of each row only: `columns`, (rows,)."""
        self._columns = columns
        try:
            yield
        finally:
            self._columns = None

    @contextmanager
    def keeping_states(self) -> Iterator[list[torch.Tensor]]:
        """Within it, keep what the layer is given, float32, in the list; the logits are nothing."""
        kept: list[torch.Tensor] = []
        self._states = kept
        try:
            yield kept
        finally:
            self._states = None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return float32 logits; on a GPU the weight is converted piece by piece."""
        if self._columns is not None:
            rows = torch.arange(len(hidden), device=hidden.device)
            hidden = hidden[rows, self._columns].unsqueeze(1)
        hidden = hidden.float()
        if self._states is not None:
            self._states.append(hidden)
            return hidden[..., :1]
        weight = self.weight if self._float32 is None else self._float32
        pieces = [hidden @ part.float().T for part in torch.split(weight, _HEAD_ROWS)]
        logits = torch.cat(pieces, dim=-1)
        return logits if self.bias is None else logits + self.bias.float()


def pick_device(name: str) -> torch.device:
    """Return the device called `auto`, `cpu`, `cuda` or `cuda:N`.

    Raises:
        ConfigError: it is none of these, or not here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise ConfigError(f"{name!r} is not auto, cpu, cuda or cuda:N", field="device")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("there is no CUDA device here", field="device", hint="use `cpu`")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"there is no device {name} here", field="device")
    return device


def pick_dtype(name: str, device: torch.device, config: PretrainedConfig) -> torch.dtype:
    """Return the type of numbers to compute in.

    `auto` on a GPU is the checkpoint's own; on a CPU it is bfloat16 for a bfloat16 checkpoint if
    the CPU has instructions for it. In every other case, such as float16 on a CPU (slow there, and
    bfloat16 would change its values), float64, or no type in config.json, it is float32.
    """
    if name != "auto":
        return DTYPES[name]
    stored = config.get_text_config(decoder=True).dtype or config.dtype
    if device.type == "cpu":
        fast = {torch.bfloat16} if torch.cpu._is_avx512_bf16_supported() else set()
    else:
        fast = {torch.bfloat16, torch.float16}
    return stored if stored in fast else torch.float32


def load(
    path: str, device: torch.device, dtype: str
) -> tuple[PreTrainedTokenizerFast, PreTrainedModel, PretrainedConfig]:
    """Load tokenizer, model and configuration; the model is quiet and ready on its device.

    Raises:
        EngineError: transformers cannot load them, or tensors are missing or do not fit.
    """
    logging.disable_progress_bar()
    logging.set_verbosity(logging.CRITICAL)  # what matters of it is raised here
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **local)
        config = AutoConfig.from_pretrained(path, **local)
        model, report = AutoModelForCausalLM.from_pretrained(
            path,
            config=config,
            dtype=pick_dtype(dtype, device, config),
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # they are named below
            output_loading_info=True,
            **local,
        )
        _check_tensors(report, config.get_text_config(decoder=True), path)
        model.to(device).eval()
    except EngineError:
        raise
    except Exception as error:  # for a broken folder transformers raises any kind, bare ones too
        raise EngineError(
            f"transformers cannot load the model: {one_line(error)}", path=path
        ) from error
    # What the model's authors set for chatting (temperature, penalties) is not for judging.
    model.generation_config = GenerationConfig()
    return tokenizer, model, config


def context_length(config: PretrainedConfig, tokenizer: PreTrainedTokenizerFast, path: str) -> int:
    """Return the most tokens that the model is made for.

    Raises:
        EngineError: neither its configuration nor its tokenizer says.
    """
    text = config.get_text_config(decoder=True)
    rope = getattr(text, "rope_parameters", None) or {}
    if rope.get("rope_type") in _ROPE_BY_LENGTH:
        # Such a model turns all positions otherwise once a prompt is longer, so what rows share
        # would depend on the longest of them.
        short = getattr(text, "original_max_position_embeddings", None)
        short = short or rope.get("original_max_position_embeddings")
        if isinstance(short, int):
            return short
    for value in (*(getattr(text, name, None) for name in _CONTEXT_FIELDS),
                  tokenizer.model_max_length):  # fmt: skip
        if isinstance(value, int) and 0 < value < _LONGEST_CONTEXT:
            return value
    raise EngineError(
        "nothing says how many tokens the model takes",
        path=path,
        field=_CONTEXT_FIELDS[0],
        hint="set `model_max_length` in tokenizer_config.json",
    )


def check_vocabulary(
    tokenizer: PreTrainedTokenizerFast, control_ids: Collection[int], rows: int, path: str
) -> None:
    """Check that each token of text has its row among the model's embeddings.

    Control tokens may go beyond them: some text models keep a token for images that they cannot
    read.

    Raises:
        EngineError: one has none.
    """
    token, largest = max(
        (item for item in tokenizer.get_vocab().items() if item[1] not in control_ids),
        key=lambda item: item[1],
        default=("", 0),
    )
    if largest >= rows:
        raise EngineError(
            f"the tokenizer does not belong to this model: its token {token!r} is number "
            f"{largest:,}, and the model has embeddings for {rows:,}",
            path=path,
            hint="copy tokenizer and weights from the same model",
        )


def one_line(error: Exception) -> str:
    """Return the kind of an error and what it says, on one line of bearable length."""
    return f"{type(error).__name__}: {shorten(str(error), 400, placeholder=' ...')}"


def _check_tensors(report: dict[str, Any], config: PretrainedConfig, path: str) -> None:
    layers = config.num_hidden_layers
    problems = {
        "missing from the weights": report["missing_keys"],
        "of another shape than config.json says": [
            f"{name} (stored {tuple(stored)}, expected {tuple(expected)})"
            for name, stored, expected in report["mismatched_keys"]
        ],
        f"of layers beyond the {layers} of config.json": [
            name
            for name in report["unexpected_keys"]
            if (found := _LAYER.search(f".{name}")) and int(found[1]) >= layers
        ],
    }
    for problem, names in problems.items():
        if names:
            more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
            raise EngineError(
                f"tensors {problem}: {', '.join(sorted(names)[:_NAMED])}{more}",
                path=path,
                hint="copy config.json and the weights from the same model",
            )
