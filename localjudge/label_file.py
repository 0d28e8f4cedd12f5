"""Label files: the answers of a metric of one's own, or the labels of a run, in a few lines."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path

from localjudge.answers import AnswerSpace, Labels, Open
from localjudge.errors import ConfigError, MetricError
from localjudge.metric_file import Direction, LabelTables, labels_of, scale_of
from localjudge.metrics import Metric
from localjudge.templates import Template
from localjudge.toml_file import TomlTable, read_toml

_ODD_PLACEHOLDER = re.compile(r"(?<!\{)\{(?![A-Za-z_]\w*\})\s*([\w][^{}\"':\n]{0,60}?)\s*\}(?!\})")


class LabelFile(TomlTable):
    """Labels or a scale, and what a metric that is built on them is called and asks."""

    name: str | None = None
    definition: str = ""
    direction: Direction = "neutral"
    labels: LabelTables | None = None
    scale: dict[str, str] | None = None

    def answer_space(self) -> AnswerSpace:
        """Return what may be answered.

        Raises:
            MetricError: there are both labels and a scale, or neither, or they are not valid.
        """
        if self.labels is not None and self.scale is None:
            return Labels(labels_of(self.labels))
        if self.scale is not None and self.labels is None:
            return scale_of(self.scale)
        raise MetricError(
            f"{'both' if self.labels else 'neither'} labels {'and' if self.labels else 'nor'} a "
            "scale declared",
            field="labels",
            hint='write [labels] and lines such as "yes" = "what it means", or [scale] and lines '
            'such as 1 = "what it means"',
        )


def build_metric(path: str | PathLike[str], text: str) -> Metric:
    """Build a metric from a label file and a template.

    The metric has the name that the file gives, else the file's own; its inputs are the
    placeholders, each filled by the column of its name.

    Args:
        path: The label file.
        text: What the model reads of a row, with `{column}` where the text of a column goes.

    Raises:
        ConfigError: `text` has no placeholder.
        MetricError: the file cannot be read, or is no valid label file.
    """
    path = Path(path)
    columns = dict.fromkeys(Template.parse(text).names)
    if not columns:
        raise ConfigError(
            "there is no {column} in it, so there is nothing to judge",
            field="text",
            hint='name the columns that the model is to read: "Question: {question}"',
        )
    # Other braces are plain text in a metric; here they are more likely a column's name.
    if odd := _ODD_PLACEHOLDER.search(text):
        raise ConfigError(
            f"{odd[0]} is no placeholder: its name is one of letters, digits and _",
            field="text",
            hint=f"for a column of another name write {{any_name}}, and --map any_name={odd[1]!r}",
        )
    file = read_toml(LabelFile, path)
    try:
        return Metric(
            name=path.stem if file.name is None else file.name,
            inputs={column: column for column in columns},
            answers=file.answer_space(),
            user=text,
            direction=file.direction,
            definition=file.definition,
        )
    except MetricError as error:
        raise _of_file(path, error) from None


def give_labels(metric: Metric, path: str | PathLike[str]) -> Metric:
    """Return `metric` with the labels of a file, in place of a list in every row.

    Raises:
        MetricError: the file cannot be read or holds more than labels, or the metric takes none.
    """
    path = Path(path)
    file = read_toml(LabelFile, path)
    unused = file.model_fields_set - {"labels", "name"}
    for field in unused if isinstance(metric.answers, Open) else ():
        raise MetricError(
            f"the metric {metric.name} takes labels alone",
            path=path,
            field=field,
            hint="take this out, or give --text for a metric of your own",
        )
    try:
        return metric.with_labels({label.name: label for label in labels_of(file.labels or {})})
    except MetricError as error:
        raise _of_file(path, error) from None


def _of_file(path: Path, error: MetricError) -> MetricError:
    """Return the error of a metric with the place in its label file."""
    field = (error.field or "").removeprefix("answers.")
    return MetricError(error.problem, path=path, field=field or None, hint=error.hint)
