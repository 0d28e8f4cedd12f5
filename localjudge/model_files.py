"""The files of a model folder: whole, safe to open, and the ones that its manifest names."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from localjudge.errors import ModelError

_MANIFEST = "manifest.json"
_PICKLES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"}
_SMALL = {".json", ".jinja", ".txt", ".model"}
_POINTER = b"version https://git-lfs.github.com/spec/"
_LONGEST_HEADER = 100_000_000  # bytes; the format's own limit


class FileRecord(BaseModel):
    """Size in bytes and SHA-256 (hexadecimal) of one file of a model folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: int
    sha256: str


class Manifest(BaseModel):
    """What `manifest.json` says of a model folder: where it came from, and each of its files."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    name: str
    licence: str
    source: str
    files: dict[str, FileRecord]


def check_files(path: Path) -> None:
    """Check the files of a model folder in a time that does not grow with the model.

    Reads the small files and the headers of the weights. With a manifest, the small files' hashes
    and all sizes must agree with it.

    Raises:
        ModelError: A file is missing, damaged or not allowed.
    """
    files = _files(path)
    for file in files.values():
        _refuse(file)
    _check_settings(path, files)
    _check_weights(path, files)
    manifest = read_manifest(path)
    if manifest:
        compare(path, manifest, weights=False)


def read_manifest(path: Path) -> Manifest | None:
    """Return the manifest of a model folder, or None if it has none.

    Raises:
        ModelError: `manifest.json` is there and is no manifest.
    """
    file = path / _MANIFEST
    if not file.exists():
        return None
    try:
        return Manifest.model_validate(_read_json(file))
    except ValidationError as error:
        raise ModelError(
            f"is no manifest of a model: {error.errors()[0]['msg']}",
            path=file,
            hint="remove or rename the file if it is not localjudge's",
        ) from error


def write_manifest(path: Path, *, name: str, licence: str, source: str) -> Manifest:
    """Hash every file under `path`, write `manifest.json` there and return it."""
    files = {
        file: FileRecord(size=place.stat().st_size, sha256=sha256(place))
        for file, place in _files(path).items()
    }
    manifest = Manifest(name=name, licence=licence, source=source, files=files)
    (path / _MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return manifest


def compare(path: Path, manifest: Manifest, *, weights: bool) -> None:
    """Compare the files under `path` with the manifest; with `weights`, read those too.

    Raises:
        ModelError: A file differs, is missing or is extra; the first such file is named.
    """
    files = _files(path)
    for name in sorted(files.keys() | manifest.files.keys()):
        problem = None
        hashed = weights or not name.endswith(".safetensors")
        if name not in files:
            problem = "is missing"
        elif name not in manifest.files:
            problem = "is extra"
        elif files[name].stat().st_size != manifest.files[name].size:
            problem = "differs in size"
        elif hashed and sha256(files[name]) != manifest.files[name].sha256:
            problem = "differs in content"
        if problem:
            raise ModelError(
                f"{problem}, by {_MANIFEST}",
                path=path / name,
                hint="copy the model's folder again, or repeat `localjudge models add`",
            )


def fingerprint(path: Path) -> str:
    """Return a SHA-256 (hexadecimal) that changes when the model's behaviour may have changed.

    With a manifest it covers the names and recorded hashes of all files. Without one it covers all
    bytes of every `.json`, `.jinja`, `.txt`, `.model` and `.safetensors` file: a sample of the
    weights would not see a fine-tuned layer. That is about a second for each gigabyte. Names are
    relative to `path`, so a moved or renamed folder keeps its fingerprint.
    """
    digest = hashlib.sha256()
    manifest = read_manifest(path)
    if manifest:
        hashes = {name: record.sha256 for name, record in manifest.files.items()}
    else:
        files = {n: f for n, f in _files(path).items() if f.suffix in (*_SMALL, ".safetensors")}
        with ThreadPoolExecutor() as pool:
            hashes = dict(zip(files, pool.map(sha256, files.values()), strict=True))
    for name, content in sorted(hashes.items()):
        digest.update(f"{name}\0{content}\0".encode())
    return digest.hexdigest()


def _files(folder: Path) -> dict[str, Path]:
    """Every file under `folder` but the manifest, by its relative name, in order of name."""
    found = sorted(path for path in folder.rglob("*") if not path.is_dir())
    broken = [str(path.relative_to(folder)) for path in found if not path.is_file()]
    if broken:
        raise ModelError(
            f"links that lead to no file: {', '.join(broken)}",
            path=folder,
            hint="copy the folder with dereferencing, such as `cp -RL`, so that files come along",
        )
    files = {path.relative_to(folder).as_posix(): path for path in found}
    files.pop(_MANIFEST, None)
    return files


def _refuse(file: Path) -> None:
    suffix = file.suffix.lower()
    if suffix == ".py":
        raise ModelError(
            "code shipped with a model is not allowed",
            path=file,
            hint="remove the file if transformers and vLLM know the architecture without it",
        )
    if suffix in _PICKLES:
        raise ModelError(
            "pickle files can run code when they are opened and are not allowed",
            path=file,
            hint="remove the file if the weights are there as safetensors; else convert them",
        )
    if suffix in _SMALL or suffix == ".safetensors":
        with file.open("rb") as stream:
            if stream.read(len(_POINTER)) == _POINTER:
                raise ModelError(
                    "is a Git LFS pointer, not the file itself",
                    path=file,
                    hint="run `git lfs pull` in the repository that it came from, and copy again",
                )


def _check_settings(path: Path, files: dict[str, Path]) -> None:
    if "config.json" not in files:
        raise ModelError(
            "config.json is missing: this is no model folder", path=path / "config.json"
        )
    if "tokenizer.json" not in files:
        raise ModelError(
            "tokenizer.json is missing",
            path=path / "tokenizer.json",
            hint="load the tokenizer with transformers' AutoTokenizer elsewhere, save it with "
            "`save_pretrained`, and copy tokenizer.json here; tokenizer.model is not read",
        )
    for name, file in files.items():
        if file.suffix == ".json" and "/" not in name:
            settings = _read_json(file)
            if name.endswith("config.json") and _has_key(settings, "auto_map"):
                raise ModelError(
                    "asks for code shipped with the model, which is never run",
                    path=file,
                    field="auto_map",
                    hint="remove the field if transformers knows the architecture without it",
                )


def _check_weights(path: Path, files: dict[str, Path]) -> None:
    weights = [name for name in files if name.endswith(".safetensors")]
    indexes = [name for name in files if name.endswith(".safetensors.index.json")]
    if not any("/" not in name for name in weights):
        raise ModelError("holds no *.safetensors file", path=path)
    if "model.safetensors" not in files and not indexes:
        raise ModelError(
            "is missing, and there are shards",
            path=path / "model.safetensors.index.json",
            hint="copy the folder again: the weights are incomplete without it",
        )
    for name in indexes:
        index = _read_json(files[name])
        shards = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(shards, dict):
            raise ModelError("holds no weight_map", path=files[name])
        for shard in sorted({str(shard) for shard in shards.values()}):
            beside = (Path(name).parent / shard).as_posix()
            if beside not in files:
                raise ModelError(f"is named in {name}, but missing", path=path / beside)
    for name in weights:
        _check_size(files[name])


def _check_size(file: Path) -> None:
    with file.open("rb") as stream:
        header = _read_header(stream, file)
    try:
        tensors = json.loads(header)
        ends = [t["data_offsets"][1] for name, t in tensors.items() if name != "__metadata__"]
        expected = 8 + len(header) + max(ends, default=0)
    except (ValueError, AttributeError, LookupError, TypeError) as error:
        raise ModelError("is no safetensors file: its header is damaged", path=file) from error
    size = file.stat().st_size
    if size != expected:
        raise ModelError(
            f"is {size:,} bytes long, but its header describes {expected:,}",
            path=file,
            hint="copy the file again: it is truncated or damaged",
        )


def _read_header(stream: BinaryIO, file: Path) -> bytes:
    """The JSON header of a safetensors file, which its first 8 bytes give the length of."""
    length = int.from_bytes(stream.read(8), "little")
    if length > min(file.stat().st_size - 8, _LONGEST_HEADER):
        raise ModelError(
            "is no safetensors file, or is truncated within its header",
            path=file,
            hint="copy the file again",
        )
    return stream.read(length)


def _has_key(value: Any, key: str) -> bool:
    if isinstance(value, dict):
        return key in value or any(_has_key(inner, key) for inner in value.values())
    return isinstance(value, list) and any(_has_key(inner, key) for inner in value)


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise ModelError(f"is no valid JSON: {error}", path=file, line=line) from error


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
