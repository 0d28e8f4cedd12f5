"""Engines: one protocol (`base`), the models behind it, and a public fake (`scripted`)."""

from __future__ import annotations

from os import PathLike
from typing import Any

from localjudge.engines.base import Engine
from localjudge.errors import ConfigError

ENGINES = ("transformers",)


def open_engine(name: str, model: str | PathLike[str], **settings: Any) -> Engine:
    """Load `model` (a name or a folder) into the engine called `name`.

    Raises:
        ConfigError: there is no such engine.
        ModelError: there is no such model here, or its folder is damaged or not allowed.
        EngineError: the engine cannot load the model.
    """
    if name not in ENGINES:
        raise ConfigError(
            f"there is no engine {name!r}", field="engine", hint=f"one of: {', '.join(ENGINES)}"
        )
    from localjudge.engines.transformers import TransformersEngine
    from localjudge.models import find_model

    return TransformersEngine(find_model(model).path, **settings)
