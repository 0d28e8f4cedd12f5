"""Further options for vLLM: given as text, checked, and read by the type that vLLM declares."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

from localjudge.errors import ConfigError

_OTHER_MODEL = "the run has one model, and all of it comes from that model's folder"
_SAMPLING = "answers are read from the model's own probabilities, with nothing in between"
_ONE_ENGINE = "a run drives one engine; use tensor_parallel_size, or judge parts of the data apart"

# What localjudge promises must not depend on an option.
_REFUSED = {
    "model": _OTHER_MODEL,
    "model_weights": _OTHER_MODEL,
    "tokenizer": _OTHER_MODEL,
    "tokenizer_mode": _OTHER_MODEL,
    "skip_tokenizer_init": _OTHER_MODEL,
    "hf_config_path": _OTHER_MODEL,
    "config_format": _OTHER_MODEL,
    "revision": _OTHER_MODEL,
    "code_revision": _OTHER_MODEL,
    "tokenizer_revision": _OTHER_MODEL,
    "hf_token": "nothing is fetched when a judge runs",
    "download_dir": "nothing is fetched when a judge runs",
    "trust_remote_code": "code from a model folder is never run",
    "dtype": "there is the option --dtype for it",
    "runner": _SAMPLING,
    "convert": _SAMPLING,
    "logprobs_mode": _SAMPLING,
    "logits_processors": _SAMPLING,
    "generation_config": _SAMPLING,
    "override_generation_config": _SAMPLING,
    "structured_outputs_config": "outlines constrains what is written, on every engine",
    "reasoning_parser": "it would keep the constraint off until the model stops thinking",
    "reasoning_parser_plugin": "it would keep the constraint off until the model stops thinking",
    "reasoning_config": "it would keep the constraint off until the model stops thinking",
    "data_parallel_size": _ONE_ENGINE,
    "worker_extension_cls": "ours ends vLLM's process when the run is killed",
    "disable_log_stats": "nothing reads vLLM's statistics",
}
_LOAD_FORMATS = ("safetensors", "fastsafetensors", "bitsandbytes", "dummy")


def parse_engine_args(given: Mapping[str, str]) -> dict[str, Any]:
    """Read options of vLLM's `EngineArgs` from text; import vllm first.

    Values are JSON where the declared type takes it (`4`, `0.8`, `true`, `{"mode": 3}`), otherwise
    plain text.

    Raises:
        ConfigError: there is no such option, it is not for use here, or the value does not fit.
    """
    from vllm import EngineArgs

    known = {
        field.name: field.type for field in dataclasses.fields(EngineArgs) if field.name[0] != "_"
    }
    values: dict[str, Any] = {}
    for written, text in given.items():
        name = written.replace("-", "_")
        if name not in known:
            close = get_close_matches(name, known, n=3)
            raise ConfigError(
                f"vLLM has no option {written!r}",
                field="engine-arg",
                hint=f"close names: {', '.join(close)}" if close else None,
            )
        if name in _REFUSED:
            raise ConfigError(
                f"{name} cannot be set: {_REFUSED[name]}", field=f"engine-arg {written}"
            )
        values[name] = _read(written, text, known[name])
    if values.get("load_format", "dummy") not in _LOAD_FORMATS:
        raise ConfigError(
            "weights are read from safetensors files only",
            field="engine-arg load_format",
            hint=f"one of: {', '.join(_LOAD_FORMATS)}",
        )
    return values


def _read(name: str, text: str, declared: Any) -> Any:
    from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

    try:
        # A few options are declared by a name that vLLM itself imports for type checkers only.
        adapter = TypeAdapter(Any if isinstance(declared, str) else declared)
    except PydanticSchemaGenerationError:
        adapter = TypeAdapter(Any)
    for value in _readings(text):
        try:
            return adapter.validate_python(value)
        except ValidationError:
            continue
    shown = declared.__name__ if isinstance(declared, type) else declared
    raise ConfigError(f"{text!r} does not fit; vLLM declares {shown}", field=f"engine-arg {name}")


def _readings(text: str) -> Iterator[Any]:
    """Yield what a text can mean: the JSON value that it spells, then the text itself."""
    with suppress(ValueError):
        yield json.loads(text)
    yield text
