"""The offline switch: what it sets, what it keeps, and that libraries obey it."""

import json
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localjudge.errors import ConfigError
from localjudge.offline import _CACHES, go_offline, home


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def run(code: str, **variables: str) -> str:
    # Another test may have opened a judge here, which points the caches somewhere else.
    inherited = {name: value for name, value in os.environ.items() if name not in _CACHES}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=inherited | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_promises_override_what_the_user_has_set(tmp_path: Path) -> None:
    os.environ.update(HF_HUB_OFFLINE="0", VLLM_NO_USAGE_STATS="0")
    go_offline(tmp_path)
    promised = (
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "HF_DATASETS_OFFLINE",
        "HF_HUB_DISABLE_TELEMETRY",
        "DO_NOT_TRACK",
        "VLLM_NO_USAGE_STATS",
        "VLLM_DO_NOT_TRACK",
    )
    assert {name: os.environ[name] for name in promised} == dict.fromkeys(promised, "1")


def test_caches_lie_in_one_private_folder(tmp_path: Path) -> None:
    names = ("HF_HOME", "OUTLINES_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    names += ("TRITON_CACHE_DIR", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT")
    for name in names:
        os.environ.pop(name, None)
    go_offline(tmp_path / "new")
    cache = tmp_path / "new" / "cache"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert {Path(os.environ[name]).parent for name in names} == {cache}


def test_cache_folders_and_addresses_of_the_user_are_kept(tmp_path: Path) -> None:
    os.environ.update(HF_HOME="/somewhere", VLLM_HOST_IP="10.0.0.1")
    os.environ.pop("GLOO_SOCKET_IFNAME", None)
    go_offline(tmp_path)
    assert os.environ["HF_HOME"] == "/somewhere"
    assert os.environ["VLLM_HOST_IP"] == "10.0.0.1"
    assert os.environ["GLOO_SOCKET_IFNAME"].startswith("lo")


def test_going_offline_twice_changes_nothing(tmp_path: Path) -> None:
    go_offline(tmp_path)
    once = dict(os.environ)
    go_offline(tmp_path)
    assert dict(os.environ) == once


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        go_offline(tmp_path / "file")
    assert caught.value.path == str(tmp_path / "file" / "cache")
    assert "LOCALJUDGE_HOME" in str(caught.value.hint)


def test_home_is_the_folder_that_the_user_names(tmp_path: Path) -> None:
    os.environ["LOCALJUDGE_HOME"] = str(tmp_path)
    assert home() == tmp_path
    os.environ.update(LOCALJUDGE_HOME="~/judge", HOME=str(tmp_path))
    assert home() == tmp_path / "judge"


def test_home_is_the_data_folder_of_the_user_by_default(tmp_path: Path) -> None:
    for name in ("LOCALJUDGE_HOME", "XDG_DATA_HOME"):
        os.environ.pop(name, None)
    os.environ["HOME"] = str(tmp_path)
    assert home().is_relative_to(tmp_path)
    assert home().name == "localjudge"


def test_a_user_without_home_directory_is_told_which_variable_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("LOCALJUDGE_HOME", "XDG_DATA_HOME", "HOME"):
        os.environ.pop(name, None)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # a system that knows no user
    with pytest.raises(ConfigError, match="no home directory") as caught:
        home()
    assert caught.value.field == "LOCALJUDGE_HOME"


def test_libraries_reach_for_no_address_but_loopback(tmp_path: Path) -> None:
    code = """
import json, sys
reached = []
def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto"):
        reached.append(str(arguments[1]))
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        reached.append(str(arguments[0]))
sys.addaudithook(watch)

from localjudge.offline import go_offline
go_offline()
import datasets, transformers, huggingface_hub
try:
    transformers.AutoTokenizer.from_pretrained("nobody/nothing")
except OSError:
    pass
print(json.dumps([reached, huggingface_hub.constants.HF_HOME]))
"""
    printed = run(code, LOCALJUDGE_HOME=str(tmp_path), HOME="/nonexistent", HF_HUB_OFFLINE="0")
    reached, cache = json.loads(printed)
    assert [place for place in reached if "127.0.0.1" not in place and "::1" not in place] == []
    assert Path(cache).is_relative_to(tmp_path)


def test_a_library_that_was_imported_first_is_offline_too(tmp_path: Path) -> None:
    code = """
import datasets, huggingface_hub
from localjudge.offline import go_offline
go_offline()
print(huggingface_hub.is_offline_mode(), datasets.config.HF_HUB_OFFLINE)
"""
    off = {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0"}
    assert run(code, LOCALJUDGE_HOME=str(tmp_path), **off).split() == ["True", "True"]
