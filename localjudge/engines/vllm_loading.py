"""Loading a model into vLLM: the settings that our promises need, and what can go wrong."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sysconfig
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from localjudge.engines.checkpoint import read_config, stored_dtype
from localjudge.errors import EngineError

if TYPE_CHECKING:
    from vllm import LLM

OWNER = "LOCALJUDGE_OWNER"
"""Variable with the id of the process that vLLM works for; see `vllm_guard`."""

_GIB = 1 << 30


def import_vllm() -> bool:
    """Import vLLM, quietly, and return whether it is the build for CPUs."""
    # vLLM's chatter is for those who serve with it; its errors are for everybody.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"])
    # Forking is not safe in a process that has threads, such as those of tokenizers.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    try:
        with warnings.catch_warnings(action="ignore"):
            import vllm.platforms
    except (ImportError, RuntimeError, OSError) as error:
        raise EngineError(
            f"vLLM cannot be imported: {one_line(error)}",
            hint="install it as the README says, or use the engine transformers",
        ) from error
    return bool(vllm.platforms.current_platform.is_cpu())


def load_llm(
    path: Path,
    *,
    dtype: str,
    given: Mapping[str, Any],
    on_cpu: bool,
    in_process: bool,
    embed: bool = False,
) -> LLM:
    """Load the model with its last layer in float32, or as it is where vLLM cannot do that.

    Args:
        path: A checked model folder.
        dtype: `auto` or the name of a type.
        given: Further arguments of vLLM's `EngineArgs`, before which ours give way.
        on_cpu: What `import_vllm` returned.
        in_process: Whether the model runs in this process, instead of one of vLLM's own.
        embed: Whether to read the hidden state of the last position, behind the final norm and as
            it is, in place of answers.

    Raises:
        EngineError: the model cannot be loaded, or cannot run.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0" if in_process else "1"
    os.environ[OWNER] = str(os.getpid())
    if not in_process:
        os.environ.setdefault("PYTHONWARNINGS", "ignore")  # for vLLM's process; ours is running
    config = read_config(path / "config.json")
    settings = {
        "model": str(path),
        "dtype": _cpu_dtype(config) if on_cpu and dtype == "auto" else dtype,
        "max_model_len": -1,  # the model's own length, or less if memory holds less
        "seed": 0,
        "load_format": "safetensors",
        # What the model's authors set for chatting (temperature, penalties) is not for judging.
        "generation_config": "vllm",
        "structured_outputs_config": {"backend": "outlines"},
        "enable_prefix_caching": True,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "worker_extension_cls": "localjudge.engines.vllm_guard.Guard",
        **(_cpu_settings(path) if on_cpu else {}),
        **(_embedding() if embed else {}),
        **given,
    }
    overrides = dict(settings.pop("hf_overrides", {}))
    try:
        head = {"head_dtype": "float32"} | overrides
        return _load(settings | {"hf_overrides": head}, in_process)
    except EngineError:
        # A quantised last layer runs in no other type than its own.
        quantised = "quantization_config" in config or "quantization" in given
        if not quantised or "head_dtype" in overrides:
            raise
    return _load(settings | {"hf_overrides": overrides}, in_process)


def _embedding() -> dict[str, Any]:
    from vllm.config import PoolerConfig

    pooler = PoolerConfig(seq_pooling_type="LAST", use_activation=False)
    return {"runner": "pooling", "convert": "embed", "pooler_config": pooler}


@contextmanager
def woken_by_death(llm: LLM) -> Iterator[None]:
    """See to it that nobody waits for results of a process that has died.

    vLLM notices the death of its process, but may leave the call that waits for results asleep.
    """
    core = llm.llm_engine.engine_core
    results = getattr(core, "outputs_queue", None)
    if results is None:  # the model runs in this process
        yield
        return
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            if core.resources.engine_dead:
                results.put_nowait(RuntimeError("its process died"))
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def shut_llm(llm: LLM, in_process: bool) -> None:
    """End vLLM's process, or free what it holds in this one once `llm` is forgotten."""
    llm.llm_engine.engine_core.shutdown()
    if in_process:
        from vllm.distributed import cleanup_dist_env_and_memory

        cleanup_dist_env_and_memory()


def resolved_settings(llm: LLM) -> dict[str, Any]:
    """Return the settings that vLLM worked out and that a result may depend on."""
    from vllm import __version__

    config = llm.llm_engine.vllm_config
    model, scheduler, parallel = llm.model_config, config.scheduler_config, config.parallel_config
    backend = config.attention_config.backend
    return {
        "vllm": str(__version__),
        "dtype": str(model.dtype).removeprefix("torch."),
        "head_dtype": str(model.head_dtype).removeprefix("torch."),
        "quantization": model.quantization,
        "prefix_caching": config.cache_config.enable_prefix_caching,
        "chunked_prefill": scheduler.enable_chunked_prefill,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "compiled": not model.enforce_eager,
        "attention_backend": "auto" if backend is None else backend.name,
    }


def one_line(error: Exception) -> str:
    """Return the kind of an error and what it says, on one line of bearable length."""
    return f"{type(error).__name__}: {shorten(str(error), 400, placeholder=' ...')}"


def _load(settings: Mapping[str, Any], in_process: bool) -> LLM:
    from vllm import LLM, SamplingParams

    try:
        with warnings.catch_warnings(action="ignore"):
            llm = LLM(**settings)
    except Exception as error:  # vLLM has no error of its own for a start that fails
        raise _load_error(error, settings) from error
    try:
        # Not all that can go wrong goes wrong before the first request.
        asked = [{"prompt_token_ids": [0]}]
        if settings.get("runner") == "pooling":
            llm.encode(asked, pooling_task="embed", use_tqdm=False)
        else:
            first = SamplingParams(max_tokens=1, temperature=0, detokenize=False)
            llm.generate(asked, first, use_tqdm=False)
    except Exception as error:
        shut_llm(llm, in_process)
        raise _load_error(error, settings) from error
    return llm


def _cpu_settings(path: Path) -> dict[str, Any]:
    """Return what suits vLLM's CPU build: compiling where that can be, memory that is there."""
    import torch
    from vllm.utils.cpu_resource_utils import get_memory_node_info, get_visible_memory_node

    # Linux grants AMX only to processes that ask. vLLM's attention uses it without asking, and
    # dies of an illegal instruction where nothing else in the process has asked before.
    torch.cpu._init_amx()
    # What vLLM compiles it cannot load again by its own means (0.32); torch's cache then serves.
    os.environ.setdefault("VLLM_USE_AOT_COMPILE", "0")
    weights = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    free = min(get_memory_node_info(node).available_memory for node in get_visible_memory_node())
    return {
        "enforce_eager": not _can_compile(),
        "block_size": 32,  # the smallest that its kernels take: the cache keeps whole blocks only
        "kv_cache_memory_bytes": min(max(weights, _GIB), max(free - weights, 0) // 2),
    }


def _can_compile() -> bool:
    """Say whether torch finds what it compiles with: a C++ compiler, and Python's headers."""
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return shutil.which(os.environ.get("CXX", "g++")) is not None and headers.exists()


def _cpu_dtype(config: Mapping[str, Any]) -> str:
    import torch

    # Half precision pays only where the CPU has instructions for it.
    halves = torch.cpu._is_avx512_bf16_supported()
    return stored_dtype(config) or "float32" if halves else "float32"


def _load_error(error: Exception, settings: Mapping[str, Any]) -> EngineError:
    text, hint = str(error), None
    fits = re.search(r"estimated maximum model length is (\d+)", text)
    if "KV cache" in text or "cache blocks" in text:
        on_cpu = "kv_cache_memory_bytes" in settings
        more = "kv_cache_memory_bytes" if on_cpu else "gpu_memory_utilization"
        shorter = f"--engine-arg max_model_len={fits[1] if fits else -1}"
        hint = f"{shorter} takes shorter prompts; --engine-arg {more}=... gives more memory"
    elif "root cause above" in text:
        hint = "what vLLM's own process printed above says why"
    return EngineError(
        f"vLLM cannot load the model: {one_line(error)}", path=settings["model"], hint=hint
    )
