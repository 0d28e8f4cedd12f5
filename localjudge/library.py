"""Metrics by name: those that are shipped, and what a user gives in place of one."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from localjudge.answers import Kind, Open
from localjudge.errors import ConfigError, MetricError
from localjudge.label_file import build_metric, give_labels
from localjudge.metric_checks import check_name
from localjudge.metrics import Metric, load_metric
from localjudge.toml_file import closest


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


def find_metrics(
    names: Sequence[str | PathLike[str]],
    *,
    labels: str | PathLike[str] | None = None,
    text: str | None = None,
) -> list[Metric]:
    """Return the metrics of a run.

    Args:
        names: Names and paths, as `find_metric` takes them.
        labels: A label file. With `text` it makes one more metric; without, those of the metrics
            that take labels get them.
        text: What the model reads of a row, with `{column}` where the text of a column goes.

    Raises:
        ConfigError: there is no metric, or a template without labels.
        MetricError: see `find_metric`; or there are labels, and no metric takes them.
    """
    metrics = [find_metric(name) for name in names]
    if labels is None and text is not None:
        raise ConfigError(
            "a template needs labels to choose from",
            field="text",
            hint="give a label file too: --labels FILE",
        )
    if labels is not None and text is not None:
        return [*metrics, build_metric(labels, text)]
    if not metrics:
        raise ConfigError(
            "no metric is given",
            field="metric",
            hint="name one (`localjudge metrics` lists those that are shipped), or give --labels "
            "and --text for one of your own",
        )
    if labels is not None:
        takers = [metric for metric in metrics if isinstance(metric.answers, Open)]
        # Where there is none, the first metric says why it takes no labels.
        metrics = [
            give_labels(metric, labels) if metric in (takers or metrics[:1]) else metric
            for metric in metrics
        ]
    return metrics


def write_starter(name: str, kind: Kind, path: str | PathLike[str]) -> None:
    """Write a metric file to start from: valid, with comments, called `name`.

    Raises:
        MetricError: `name` cannot be the name of a metric.
        ConfigError: `path` is there already, or cannot be written.
    """
    check_name(name)
    starter = Path(__file__).parent / "starters" / f"{kind}.toml"
    text = starter.read_text(encoding="utf-8").replace('"NAME"', f'"{name}"')
    text = text.replace("FILE", str(path))
    try:
        with Path(path).open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(
            "there is such a file already", path=path, hint="choose another name, or --out FILE"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror or error}", path=path) from None
