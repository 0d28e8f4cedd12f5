"""The switch that keeps a run on this machine: no hub, no telemetry, no home directory needed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from platformdirs import user_data_dir

from localjudge.errors import ConfigError

# These are the promise, so they override whatever the user's environment says.
_PROMISES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
}

# Libraries ask the network for the machine's own address unless they are told one.
_ADDRESSES = {
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
}

# Folders that libraries would otherwise make in the home directory.
_CACHES = {
    "HF_HOME": "huggingface",
    "OUTLINES_CACHE_DIR": "outlines",
    "TORCHINDUCTOR_CACHE_DIR": "torchinductor",
    "TRITON_CACHE_DIR": "triton",
    "VLLM_CACHE_ROOT": "vllm",
    "VLLM_CONFIG_ROOT": "vllm-config",
}

# A library read its variables when it was imported; one that came before us is told here.
_ALREADY_READ = {
    "huggingface_hub.constants": ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"),
    "datasets.config": ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"),
}

_HINT = "set the environment variable LOCALJUDGE_HOME to a folder that you can write to"


def home() -> Path:
    """Return the folder that holds models and caches, as an absolute path. It need not exist.

    It is `$LOCALJUDGE_HOME` if that is set, and else this user's data folder.

    Raises:
        ConfigError: The variable is not set and this user has no home directory.
    """
    named = os.environ.get("LOCALJUDGE_HOME")
    try:
        path = Path(os.path.expanduser(named)) if named else Path(user_data_dir("localjudge"))
    except RuntimeError:  # how platformdirs says that it found no home directory
        raise ConfigError(
            "this user has no home directory, so there is no folder for models and caches",
            field="LOCALJUDGE_HOME",
            hint=_HINT,
        ) from None
    return path.absolute()


def go_offline(folder: Path | None = None) -> None:
    """Set the environment of this process so that no library uses the network.

    Call it before transformers, datasets or vllm are imported; calling it again does no harm.
    Variables that allow a hub or telemetry are overridden. Cache folders and addresses that the
    user has set are kept; the others point into `cache` under `folder` and to the loopback
    interface. `TOKENIZERS_PARALLELISM` is left alone: tokenising is faster with it.

    Args:
        folder: Where `cache` is made, readable by this user only. By default `home()`.

    Raises:
        ConfigError: The cache folder cannot be written.
    """
    cache = (home() if folder is None else folder.absolute()) / "cache"
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        writable = os.access(cache, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        raise ConfigError(
            "the folder for caches cannot be written",
            path=cache,
            hint=_HINT,
        )
    os.environ.update(_PROMISES)
    kept = _ADDRESSES | {name: str(cache / subfolder) for name, subfolder in _CACHES.items()}
    for name, value in kept.items():
        os.environ[name] = os.environ.get(name) or value
    for module, names in _ALREADY_READ.items():
        if module in sys.modules:
            for name in names:
                setattr(sys.modules[module], name, True)
