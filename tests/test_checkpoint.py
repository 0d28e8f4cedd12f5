"""What a model's small files say, and that they may disagree."""

from __future__ import annotations

import json

import pytest

from localjudge.engines.checkpoint import read_config, stop_ids, stored_dtype
from localjudge.errors import EngineError


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float16"}, "float16"),
        ({"text_config": {"torch_dtype": "bfloat16"}}, "bfloat16"),
        ({"dtype": None, "text_config": None}, None),
        ({}, None),
    ],
)
def test_the_type_of_the_weights(config, dtype):
    assert stored_dtype(config) == dtype


def test_every_file_may_name_tokens_that_end_a_text(tmp_path, chatml):
    files = {
        "config.json": {"eos_token_id": 7, "text_config": {"eos_token_id": [8, 9]}},
        "generation_config.json": {"eos_token_id": [1, 106, 50]},
    }
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert stop_ids(tmp_path, chatml) == {chatml.eos_token_id, 7, 8, 9, 1, 106, 50}


def test_without_those_files_the_tokenizers_own_is_left(tmp_path, chatml):
    assert stop_ids(tmp_path, chatml) == {chatml.eos_token_id}


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(EngineError, match=r"config\.json"):
        read_config(tmp_path / "config.json")
