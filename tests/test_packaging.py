"""The wheel holds what the project needs to run: code, metric files and licence."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*arguments: str, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the package as its wheel installs it, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ("-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation")
    run(*build, "--wheel-dir", str(folder), cwd=folder)
    (wheel,) = folder.glob("*.whl")
    target = folder / "installed"
    run("-m", "pip", "install", str(wheel), "--no-deps", "--target", str(target), cwd=folder)
    return target


def test_the_wheel_finds_its_metrics_without_the_repository(installed: Path) -> None:
    code = "import localjudge.library as l; print(l.__file__); print(*l.shipped())"
    paths = os.pathsep.join([str(installed), sysconfig.get_paths()["purelib"]])
    # -S leaves out the link that an editable install makes to the repository.
    file, metrics = run("-S", "-c", code, cwd=installed, PYTHONPATH=paths).splitlines()
    assert Path(file).is_relative_to(installed)
    assert metrics.split() == sorted(path.stem for path in (ROOT / "prompts").rglob("*.toml"))
    starters = {path.name for path in (ROOT / "localjudge" / "starters").iterdir()}
    assert {path.name for path in (installed / "localjudge" / "starters").iterdir()} == starters
    pages = {path.name for path in (ROOT / "localjudge" / "pages").iterdir()}
    assert {path.name for path in (installed / "localjudge" / "pages").iterdir()} == pages


def test_the_wheel_holds_types_and_licence(installed: Path) -> None:
    assert (installed / "localjudge" / "py.typed").is_file()
    (information,) = installed.glob("localjudge_llm-*.dist-info")
    assert (information / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
