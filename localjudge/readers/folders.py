"""Dataset folders: saved by `save_to_disk`, or of data files that `datasets` can tell apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from localjudge.errors import ConfigError, DataError
from localjudge.offline import go_offline
from localjudge.readers.frames import choose_split, dataset_source
from localjudge.readers.source import Record, Source

_SAVED = ("state.json", "dataset_dict.json")
# What `datasets` calls our formats.
_LIBRARY = {"jsonl": "json", "json": "json", "csv": "csv", "tsv": "csv", "parquet": "parquet"}
_WHICH_FILES = ("name", "version", "data_dir", "data_files", "description")


def folder_source(
    folder: Path,
    split: str | None,
    open_file: Callable[[Path], Source],
    kind_of: Callable[[Path], str | None],
    wanted: str | None,
) -> Source:
    """Return the rows of a split of a dataset folder. They are numbered through all its files.

    What `Dataset.save_to_disk` and `DatasetDict.save_to_disk` wrote is read in place. Of any other
    folder, `datasets` says which files make up the split; these are read as they are, not through
    `datasets`, which would guess types, and take `NA` in a CSV file for a missing value.

    Args:
        folder: The folder.
        split: The split; not needed where there is one only.
        open_file: Returns the rows of one data file.
        kind_of: Returns the format of a file that can be read; None of any other.
        wanted: Which format to read, where there are files of several.

    Raises:
        ConfigError: there is no such split, or it must be said which one; or there are files of
            several formats, and none or a wrong one is named.
        DataError: the folder is damaged or holds no dataset, or one that needs code of its own.
    """
    go_offline()
    if any((folder / name).is_file() for name in _SAVED):
        if wanted is not None:
            raise ConfigError("a saved dataset has a format of its own", field="data_format")
        return _saved(folder, split)
    files = _files(folder, split, kind_of, wanted)
    sources = [open_file(file) for file in files]

    def records() -> Iterator[Record]:
        row = 0
        for source in sources:
            for _, record in source.records():
                row += 1
                yield row, record

    def left_out() -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for source in sources for name in source.left_out()))

    return Source(str(folder), records, left_out, folder)


def _saved(folder: Path, split: str | None) -> Source:
    from datasets import DatasetDict, load_from_disk

    try:
        dataset = load_from_disk(folder, keep_in_memory=False)
    except Exception as error:  # whatever a damaged folder makes the library raise
        raise _unusable(folder, error) from error
    if isinstance(dataset, DatasetDict):
        dataset = dataset[choose_split(list(dataset), split, str(folder))]
    elif split is not None:
        choose_split([str(dataset.split)] if dataset.split else [], split, str(folder))
    return replace(dataset_source(dataset, str(folder)), path=folder)


def _files(
    folder: Path, split: str | None, kind_of: Callable[[Path], str | None], wanted: str | None
) -> Sequence[Path]:
    from datasets import load_dataset_builder

    wanted_files = _check_kinds(folder, kind_of, wanted)
    try:
        if wanted is None:
            config = load_dataset_builder(str(folder.resolve())).config
        else:
            config = load_dataset_builder(_LIBRARY[wanted], data_dir=str(folder.resolve())).config
    except Exception as error:  # the same
        raise _unusable(folder, error) from error
    _refuse_options(config, folder)
    files = {
        str(name): [path for path in map(Path, paths) if wanted in (None, kind_of(path))]
        for name, paths in (config.data_files or {}).items()
    }
    files = {name: paths for name, paths in files.items() if paths}
    if not files and wanted_files:  # no name among them is that of a split
        files = {"train": wanted_files}
    return files[choose_split(list(files), split, str(folder))]


def _check_kinds(
    folder: Path, kind_of: Callable[[Path], str | None], wanted: str | None
) -> list[Path]:
    """Refuse files of several formats: `datasets` would take those of one, and say nothing.

    Returns:
        The files of the format that is wanted.
    """
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        kind, place = kind_of(path), path.relative_to(folder)
        hidden = any(part.startswith((".", "__")) for part in place.parts)
        if kind is not None and not hidden and path.is_file():
            found.setdefault(kind, []).append(place)
    kinds = ", ".join(f"{kind} ({places[0]})" for kind, places in found.items())
    if wanted is not None and wanted not in found:
        raise ConfigError(
            f"{folder} has no {wanted} files", field="data_format", hint=f"there are: {kinds}"
        )
    several = len({_LIBRARY[kind] for kind in found}) > 1
    if wanted is None and several and not _names_files(folder / "README.md"):
        raise ConfigError(
            f"{folder} has files of several formats: {kinds}",
            field="data_format",
            hint=f"say which are the rows (--data-format {next(iter(found))}), or give one file",
        )
    return [folder / place for place in found.get(wanted or "", [])]


def _names_files(readme: Path) -> bool:
    return readme.is_file() and b"data_files:" in readme.read_bytes()


def _refuse_options(config: Any, folder: Path) -> None:
    """Refuse a README that says how its files are to be read: they would be read otherwise."""
    usual = type(config)()
    names = (field.name for field in fields(config) if field.name not in _WHICH_FILES)
    given = [name for name in names if getattr(config, name) != getattr(usual, name)]
    if given:
        raise DataError(
            f"the README of the dataset sets options that are not known: {', '.join(given)}",
            path=folder,
            hint="load it with `datasets`, save it by save_to_disk, and give the new folder",
        )


def _unusable(folder: Path, error: Exception) -> DataError:
    return DataError(
        f"not a usable dataset folder: {error or type(error).__name__}",
        path=folder,
        hint="give a folder that save_to_disk wrote, one with data files, or a single file",
    )
