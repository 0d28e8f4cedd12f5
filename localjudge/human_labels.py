"""Labels given by people: read from a data file, and held to what a metric may answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from textwrap import shorten
from typing import Any

from localjudge.errors import DataError
from localjudge.records import Row
from localjudge.tables import open_table
from localjudge.toml_file import closest


@dataclass(frozen=True, slots=True)
class Rating:
    """What one person said of one row: the label as text, and who it was."""

    rater: str
    label: str


@dataclass(frozen=True, slots=True)
class HumanLabels:
    """The labels of a human file.

    Attributes:
        path: The file, as errors name it.
        ratings: The ratings of each row, by its id; rows without any are left out.
        clusters: The cluster of each row, by its id; empty if there is no such column.
        repeated: Number of ids that stand on more than one line.
        unlabelled: Number of lines without a label.
        named: Whether the raters have names; otherwise they are numbered within each row.
        numbered: Whether the file has no ids, so that its lines' numbers stand for them.
    """

    path: str
    ratings: Mapping[str, Sequence[Rating]]
    clusters: Mapping[str, str]
    repeated: int
    unlabelled: int
    named: bool
    numbered: bool = False

    def placed(
        self, labels: Sequence[str], mapping: Mapping[str, str]
    ) -> dict[str, list[tuple[str, int]]]:
        """Return the ratings of each row as rater and place in `labels`.

        Args:
            labels: The answers of a metric, as text.
            mapping: Human label to answer, where the two are called differently.

        Raises:
            DataError: a human label is none of the answers; all such are counted.
        """
        places = {label: place for place, label in enumerate(labels)}
        unknown: Counter[str] = Counter()
        placed = {}
        for row_id, ratings in self.ratings.items():
            named = [(each.rater, mapping.get(each.label, each.label)) for each in ratings]
            unknown.update(label for _, label in named if label not in places)
            placed[row_id] = [(rater, places.get(label, -1)) for rater, label in named]
        if unknown:
            raise self._unknown(unknown, labels)
        return placed

    def _unknown(self, unknown: Counter[str], labels: Sequence[str]) -> DataError:
        most = [
            (shorten(repr(label), 60, placeholder="..."), n) for label, n in unknown.most_common(10)
        ]
        shown = ", ".join(f"{label} ({number})" for label, number in most)
        more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
        folded = {label.casefold(): label for label in labels}
        example = unknown.most_common(1)[0][0]
        answer = folded.get(example.casefold(), "ANSWER")
        return DataError(
            f"labels that are none of the metric's answers: {shown}{more}",
            path=self.path,
            hint=f"say what they mean: --map-label {example!r}={answer!r}; "
            f"the answers: {', '.join(labels[:20])}{', ...' if len(labels) > 20 else ''}",
        )


def read_human(
    path: str | PathLike[str],
    *,
    label_column: str = "label",
    id_column: str | None = None,
    rater_column: str | None = None,
    cluster_column: str | None = None,
) -> HumanLabels:
    """Read a file of human labels: JSON Lines, CSV, TSV or Parquet.

    A row has several raters if its id stands on several lines, or if its label is a list.

    Args:
        path: The file, as errors name it.
        label_column: The column that holds the label: text, an integer, or a list of such.
        id_column: The column that holds the ids; by default `id`, else the line's number.
        rater_column: The column that says who gave the label.
        cluster_column: The column that says which rows belong together, such as a document.

    Raises:
        DataError: the file cannot be read, a column is in no row, a label or cluster is not of
            those types, a rater has two labels for one row, or a row is in two clusters.
    """
    table = open_table(path, id_column=id_column)
    ratings: dict[str, list[Rating]] = {}
    clusters: dict[str, str] = {}
    lines: Counter[str] = Counter()
    columns: dict[str, None] = {}
    unlabelled = 0
    for row in table:
        columns |= dict.fromkeys(row.fields)
        row_id = row.id.strip()
        lines[row_id] += 1
        labels = list(_labels(row, label_column, table.source.name))
        unlabelled += not labels
        given = ratings.setdefault(row_id, []) if labels else []
        rater = None if rater_column is None else _text(row, rater_column, table.source.name)
        for label in labels:
            given.append(Rating(str(len(given) + 1) if rater is None else rater, label))
        if rater is not None and sum(each.rater == rater for each in given) > 1:
            raise DataError(
                f"the rater {rater!r} has two labels for the row {row_id!r}",
                path=table.source.name,
                line=row.line,
                hint="keep one of them",
            )
        if cluster_column is not None:
            cluster = _text(row, cluster_column, table.source.name)
            if clusters.setdefault(row_id, cluster) != cluster:
                raise DataError(
                    f"the row {row_id!r} is in two clusters: {clusters[row_id]!r} and {cluster!r}",
                    path=table.source.name,
                    line=row.line,
                    field=cluster_column,
                )
    if label_column not in columns:
        hint = closest(label_column, columns)
        raise DataError(f"no such column: {label_column!r}", path=table.source.name, hint=hint)
    repeated = sum(number > 1 for number in lines.values())
    return HumanLabels(
        table.source.name,
        ratings,
        clusters,
        repeated,
        unlabelled,
        named=rater_column is not None,
        numbered=table.id_column is None,
    )


def _labels(row: Row, column: str, path: str) -> Iterator[str]:
    value = row.fields.get(column)
    for each in value if isinstance(value, list) else [value]:
        if each is not None and (text := _as_label(each, row, column, path)):
            yield text


def _as_label(value: Any, row: Row, column: str, path: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | int):
        return str(value).strip()
    raise DataError(
        f"{value!r} is no label",
        path=path,
        line=row.line,
        field=column,
        hint="a label is text or an integer, or a list of those of several raters",
    )


def _text(row: Row, column: str, path: str) -> str:
    value = row.fields.get(column)
    if isinstance(value, str | int) and str(value).strip():
        return str(value).strip()
    raise DataError(
        "the row has no such value"
        if value is None
        else f"{value!r} is neither text nor an integer",
        path=path,
        line=row.line,
        field=column,
        hint=closest(column, row.fields) if column not in row.fields else None,
    )
