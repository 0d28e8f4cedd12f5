"""Files of human-labelled rows: which metric judges which, and where they can be had.

    python benchmarks/labelled.py fetch --data FOLDER [--only NAME ...]

fetches the data sets of `datasets.toml` that name a Hugging Face repository, on a machine that has
a network, and writes one JSON Lines file each to FOLDER. Everything else here works offline.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from localjudge.library import shipped
from localjudge.metrics import Metric, load_metric
from localjudge.outputs import replacing

TABLE = Path(__file__).with_name("datasets.toml")
_ENTRY = {"metric", "map", "group", "hub"}
_HUB = {"repository", "config", "split", "revision", "id", "columns", "labels", "label", "round"}


@dataclass(frozen=True)
class DataSet:
    """A file of labelled rows, and how a metric reads it.

    Attributes:
        path: JSON Lines, with the columns `id` and `label`.
        metric: The metric that judges it.
        mapping: Column of each input that is not the metric's own.
        group: Column whose equal values belong together, such as a document; None: each row alone.
    """

    path: Path
    metric: Metric
    mapping: dict[str, str]
    group: str | None

    @property
    def name(self) -> str:
        """The file's name without its ending."""
        return self.path.stem


def entries() -> dict[str, dict[str, Any]]:
    """Return the table of data sets; a key that it does not know ends the program."""
    table: dict[str, dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    for name, entry in table.items():
        unknown = entry.keys() - _ENTRY or entry.get("hub", {}).keys() - _HUB
        if unknown:
            sys.exit(f"{TABLE.name}: [{name}] has unknown keys: {', '.join(sorted(unknown))}")
    return table


def find(data: Path, prompts: Path | None, only: Sequence[str] | None) -> list[DataSet]:
    """Return the files of `data` that a metric judges, sorted by name.

    Args:
        data: Folder of JSON Lines files.
        prompts: Folder of metric files that stand in for shipped ones of the same name.
        only: Names of files, without their ending; None: all.
    """
    metrics: dict[str, Any] = dict(shipped())
    if prompts is not None:
        metrics |= {path.stem: path for path in prompts.glob("*.toml")}
    known = {name: {"metric": name} for name in metrics} | entries()
    paths = {path.stem: path for path in sorted(data.glob("*.jsonl")) if path.stem in known}
    for name in only or ():
        if name not in paths:
            sys.exit(f"{data} has no file {name}.jsonl that {TABLE.name} or a metric is called by")
    if not paths:
        sys.exit(f"{data} has no file that {TABLE.name} or a metric is called by")
    found = []
    for name, path in paths.items():
        if only is None or name in only:
            entry = known[name]
            metric = load_metric(metrics[entry["metric"]])
            found.append(DataSet(path, metric, entry.get("map", {}), entry.get("group")))
    return found


def sample(path: Path, half: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Draw at most `count` rows of a file, or of one half of it."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if half in ("all", half_of(str(row["id"])))]
    return random.Random(seed).sample(rows, min(count, len(rows)))


def half_of(row_id: str) -> str:
    """Return the half that a row belongs to, `dev` or `final`."""
    return ("dev", "final")[sha256(row_id.encode()).digest()[0] % 2]


def fetched(hub: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a repository with our columns. It needs the network, unless it is a path.

    Raises:
        KeyError: a column or label is not there.
    """
    from datasets import load_dataset

    table = load_dataset(
        hub["repository"], hub.get("config"), split=hub["split"], revision=hub.get("revision")
    )
    missing = {*hub["columns"].values(), hub["label"]} - {*table.column_names}
    if missing:
        raise KeyError(f"no column {', '.join(sorted(missing))} among {table.column_names}")
    for number, row in enumerate(table):
        label = row[hub["label"]]
        if hub.get("round"):
            label = round(label)
        label = hub["labels"].get(str(label)) if "labels" in hub else label
        if label is not None:  # labels that the table leaves out have no answer of the metric
            columns = {ours: row[theirs] for ours, theirs in hub["columns"].items()}
            yield {"id": str(row[hub["id"]] if "id" in hub else number), **columns, "label": label}


def main() -> None:
    """Fetch data sets."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    fetch = commands.add_parser("fetch", help="fetch data sets; this needs a network")
    fetch.add_argument("--data", type=Path, required=True, help="folder for the files")
    fetch.add_argument("--only", nargs="*", metavar="NAME")
    options = parser.parse_args()
    table = {name: entry["hub"] for name, entry in entries().items() if "hub" in entry}
    for name in options.only or ():
        if name not in table:
            sys.exit(f"{TABLE.name} names no repository for {name}; those: {', '.join(table)}")
    options.data.mkdir(parents=True, exist_ok=True)
    for name, hub in table.items():
        if options.only and name not in options.only:
            continue
        count = 0
        with (
            replacing(options.data / f"{name}.jsonl") as partial,
            partial.open("w", encoding="utf-8") as file,
        ):
            for count, row in enumerate(fetched(hub), 1):  # noqa: B007
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{name}: {count} rows")


if __name__ == "__main__":
    main()
