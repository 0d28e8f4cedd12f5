"""localjudge: an offline LLM-as-judge runtime on open models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from localjudge.judge import Judge
    from localjudge.metrics import classifier, load_metric, scorer
    from localjudge.runs import open_run

__all__ = ["Judge", "classifier", "load_metric", "open_run", "scorer"]

_HOMES = {
    "Judge": "localjudge.judge",
    "classifier": "localjudge.metrics",
    "load_metric": "localjudge.metrics",
    "open_run": "localjudge.runs",
    "scorer": "localjudge.metrics",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `import localjudge` takes no time.
    if name not in _HOMES:
        raise AttributeError(f"module 'localjudge' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
