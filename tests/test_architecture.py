"""The layers of docs/architecture.md, the public names, and what an import may cost."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import localjudge

PACKAGE = Path(localjudge.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"
HEAVY = {"torch", "transformers", "tokenizers", "pyarrow", "pandas", "datasets", "outlines"}
HEAVY |= {"outlines_core", "vllm", "numpy", "sklearn", "scipy", "jinja2", "huggingface_hub"}


def layers() -> list[list[str]]:
    """Read the module table: the modules of each layer, lowest first."""
    found: list[list[str]] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"`([\w/]+)(?:\.py)?`", cells[1]) if len(cells) == 3 else []
        if names and cells[0] and cells[0] != "layer":
            found.append(names)
        elif names and not cells[0]:
            found[-1] += names
    return found


def modules() -> dict[str, Path]:
    return {
        str(path.relative_to(PACKAGE).with_suffix("")): path
        for path in PACKAGE.rglob("*.py")
        if path.parent != PACKAGE or path.stem not in ("__init__", "__main__")
    }


def layer_of(module: str) -> int:
    for depth, names in enumerate(layers()):
        if module in names or f"{module.split('/')[0]}/" in names:
            return depth
    raise AssertionError(f"{module} is not in the module table of docs/architecture.md")


def imports(path: Path) -> set[str]:
    """Return the modules of the package that a file imports, anywhere in it."""
    named = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("localjudge"):
            module = (node.module or "").removeprefix("localjudge").strip(".").replace(".", "/")
            named |= {module, f"{module}/__init__", *(f"{module}/{a.name}" for a in node.names)}
            named |= {alias.name for alias in node.names if not module}
    return named & modules().keys()


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_module_imports_only_from_its_own_layer_or_lower_ones(module):
    for other in imports(modules()[module]):
        assert layer_of(other) <= layer_of(module), f"{module} imports {other}"


def test_the_page_names_no_module_that_is_not_there():
    there = {*modules(), *(f"{name.split('/')[0]}/" for name in modules())}
    assert {name for names in layers() for name in names} <= there


def test_the_public_names_are_one_sorted_list_and_all_there():
    assert localjudge.__all__ == sorted(localjudge.__all__)
    for name in localjudge.__all__:
        assert getattr(localjudge, name).__module__.startswith("localjudge.")
    with pytest.raises(AttributeError, match="no_such_name"):
        localjudge.no_such_name  # noqa: B018


@pytest.mark.parametrize("module", ["localjudge", "localjudge.cli", "localjudge.library"])
def test_an_import_loads_no_heavy_library(module):
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert HEAVY.isdisjoint(loaded)


def test_no_module_outgrows_one_sitting():
    for name, path in modules().items():
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 370, name
