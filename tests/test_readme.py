"""What the README shows works as it stands there."""

import re
from pathlib import Path

import click
import pytest
from typer.main import get_command

from localjudge.cli import app
from localjudge.label_file import build_metric
from localjudge.library import shipped
from localjudge.metrics import load_metric

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def block(beginning: str) -> str:
    blocks: list[str] = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    [found] = [block for block in blocks if block.startswith(beginning)]
    return found


def test_the_label_file_and_its_template_make_a_metric(tmp_path: Path) -> None:
    (tmp_path / "intent.toml").write_text(block("definition"), encoding="utf-8")
    [template] = re.findall(r'--text "(.*?)"', README)
    metric = build_metric(tmp_path / "intent.toml", template)
    assert (metric.name, len(metric.answers.values)) == ("intent", 5)
    assert list(metric.inputs) == ["subject", "message"]


def test_the_metric_file_is_valid(tmp_path: Path) -> None:
    (tmp_path / "tone.toml").write_text(block('name = "tone"'), encoding="utf-8")
    assert load_metric(tmp_path / "tone.toml").name == "tone"


def test_the_number_of_metrics_is_right() -> None:
    assert len(shipped()) == 14
    assert "the fourteen metrics" in README


def declared(command: click.Command) -> set[str]:
    own = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return own.union(*map(declared, getattr(command, "commands", {}).values()))


@pytest.mark.parametrize("option", sorted(set(re.findall(r"`?(--[a-z][a-z-]+)", README))))
def test_every_option_that_is_named_exists(option: str) -> None:
    install = (Path(__file__).parents[1] / "scripts" / "install").read_text(encoding="utf-8")
    assert option in declared(get_command(app)) or f"{option} " in install
