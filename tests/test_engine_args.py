"""Further options for vLLM: read by the declared type, and none that would break a promise."""

from __future__ import annotations

import pytest

from localjudge.errors import ConfigError

pytest.importorskip("vllm", reason="vLLM is not installed")
from localjudge.engines.engine_args import _REFUSED, parse_engine_args

pytestmark = [
    pytest.mark.vllm,
    # vLLM's and torch's own use of what they have deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("tensor_parallel_size", "2", 2),
        ("tensor-parallel-size", "2", 2),
        ("gpu_memory_utilization", "0.8", 0.8),
        ("enable_prefix_caching", "false", False),
        ("enforce_eager", "true", True),
        ("quantization", "fp8", "fp8"),
        ("quantization", "null", None),
        ("max_model_len", "-1", -1),
        ("kv_cache_memory_bytes", "1073741824", 1 << 30),
        ("hf_overrides", '{"rope_theta": 3}', {"rope_theta": 3}),
        ("quantization_config", '{"moe": "fp8"}', {"moe": "fp8"}),
        ("load_format", "dummy", "dummy"),
    ],
)
def test_a_value_is_read_by_the_type_that_vllm_declares(name, text, value):
    [(key, read)] = parse_engine_args({name: text}).items()
    assert key == name.replace("-", "_")
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("tensor_paralel_size", "2", "tensor_parallel_size"),
        ("zzz", "2", "zzz"),
        ("tensor_parallel_size", "two", "int"),
        ("kv_cache_dtype", "float99", "float99"),
        ("load_format", "pt", "safetensors"),
        ("load_format", "npcache", "safetensors"),
        ("_api_process_count", "2", "no option"),
    ],
)
def test_what_vllm_does_not_know_is_refused_with_what_it_does(name, text, says):
    with pytest.raises(ConfigError) as caught:
        parse_engine_args({name: text})
    assert says in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", sorted(_REFUSED))
def test_what_would_break_a_promise_is_refused_with_the_reason(name):
    from vllm import EngineArgs

    assert hasattr(EngineArgs, name) or name in EngineArgs.__dataclass_fields__
    with pytest.raises(ConfigError) as caught:
        parse_engine_args({name: "true"})
    assert _REFUSED[name] in str(caught.value)
