"""The shipped metrics: where they lie, and how one is found by name."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from localjudge.errors import MetricError
from localjudge.metric_file import closest
from localjudge.metrics import Metric, load_metric


def shipped() -> dict[str, Path]:
    """Return name and file of every shipped metric, sorted by name."""
    package = Path(__file__).parent
    folder = package / "prompts"  # in an installed package
    if not folder.is_dir():
        folder = package.parent / "prompts"  # in a checkout
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find_metric(metric: str | PathLike[str]) -> Metric:
    """Load a metric: a shipped one by its name, any other by the path of its file.

    Text that ends with `.toml` or holds a `/` is a path.

    Raises:
        MetricError: no shipped metric has the name, or the file is no valid metric.
    """
    if not isinstance(metric, str) or metric.endswith(".toml") or "/" in metric:
        return load_metric(metric)
    known = shipped()
    if metric not in known:
        raise MetricError(
            f"there is no shipped metric {metric!r}",
            hint=f"{closest(metric, known)} (`localjudge metrics` lists them; "
            "a file is named by its path, ending with .toml)",
        )
    return load_metric(known[metric])
