"""The ways to judge that are compared. A host is one loaded model that can take a few of them.

localjudge's own ways do the whole job, from a file of rows to stored verdicts. The alternatives
are written as a user would write them after the documentation of vLLM and outlines; they get ready
messages and store nothing, in their favour. Loading a model is never timed.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from workload import LONGEST_ANSWER, Load, Workload

from localjudge.answers import Closed
from localjudge.engines import ENGINES

OURS = ("localjudge-vllm", "localjudge-transformers")


@dataclass(frozen=True)
class Outcome:
    """What came out of one measurement.

    Attributes:
        valid: How many answers were allowed ones; None where none was asked for.
        output_tokens: How many tokens the model wrote.
    """

    valid: int | None
    output_tokens: int


class Host(Protocol):
    """A loaded model.

    Attributes:
        ways: The ways that it can take.
        caches: Whether it keeps what it computed of a prompt's beginning.
    """

    ways: ClassVar[tuple[str, ...]]
    caches: ClassVar[bool]

    def __init__(self, work: Workload, vllm_args: dict[str, str]) -> None: ...

    def forget(self) -> None:
        """Empty the prefix cache."""

    def run(self, way: str, load: Load, rows: int, out: Path) -> Any:
        """Judge the first `rows` of `load`; this is what is timed. Return what `look` reads."""

    def look(self, way: str, result: Any) -> Outcome:
        """Say what `run` brought."""


class _Localjudge:
    """`run_file`, from a file of rows to stored verdicts."""

    caches = True
    engine: ClassVar[str]

    def __init__(self, work: Workload, **settings: Any) -> None:
        from localjudge.engines import open_engine
        from localjudge.judge import Judge

        class LastingJudge(Judge):
            def close(self) -> None:
                """Stay open: the next measurement uses the same model."""

        self._metric = work.metric
        self._model = work.model
        self._engine: Any = open_engine(self.engine, work.model, **settings)
        self._judges = {
            decoding: LastingJudge(self._engine, decoding=decoding)
            for decoding in ("direct", "guided")
        }

    def run(self, way: str, load: Load, rows: int, out: Path) -> Any:
        """Judge the first `rows` of the file into the run folder `out`."""
        from localjudge.run import run_file

        decoding: Literal["direct", "guided"] = "guided" if "guided" in way else "direct"
        return run_file(
            [self._metric],
            load.path,
            model=self._model,
            out=out,
            engine=self.engine,
            options={"decoding": decoding},
            limit=rows,
            open_judge=lambda *_, **__: self._judges[decoding],
        )

    def look(self, way: str, result: Any) -> Outcome:
        """Count valid answers and written tokens."""
        from localjudge.runs import read_verdicts

        verdicts = [*read_verdicts(result.folder)]
        return Outcome(
            sum(verdict.status == "ok" for verdict in verdicts),
            sum(verdict.output_tokens for verdict in verdicts),
        )


class LocaljudgeVllm(_Localjudge):
    """localjudge on vLLM, direct and guided by outlines."""

    ways = ("localjudge-vllm", "guided-outlines")
    engine = "vllm"

    def __init__(self, work: Workload, vllm_args: dict[str, str]) -> None:
        super().__init__(work, engine_args=vllm_args)

    def forget(self) -> None:
        """Empty the prefix cache."""
        self._engine.engine.llm.reset_prefix_cache()


class LocaljudgeTransformers(_Localjudge):
    """localjudge on transformers, and its engine alone on ready token ids."""

    ways = ("localjudge-transformers", "limit-transformers")
    engine = "transformers"

    def __init__(self, work: Workload, vllm_args: dict[str, str]) -> None:
        super().__init__(work)

    def forget(self) -> None:
        """Empty the prefix cache."""
        self._engine.engine._prefixes.clear()

    def run(self, way: str, load: Load, rows: int, out: Path) -> Any:
        """Judge the first `rows`, or let the engine alone read them."""
        if way != "limit-transformers":
            return super().run(way, load, rows, out)
        size = self._engine.chunk_rows
        for start in range(0, rows, size):
            prompts = load.extended[start : min(rows, start + size)]
            self._engine.choose(prompts, [load.tree] * len(prompts))
        return None

    def look(self, way: str, result: Any) -> Outcome:
        """Count valid answers and written tokens."""
        return super().look(way, result) if result else Outcome(None, 0)


class Vllm:
    """vLLM by hand: the limit, its structured output, and free text that is parsed afterwards."""

    ways = ("limit", "guided-xgrammar", "free-text")
    caches = True

    def __init__(self, work: Workload, vllm_args: dict[str, str]) -> None:
        import torch

        if not torch.cuda.is_available():
            # In the calling process the CPU build starts faster and takes all cores in its turn.
            os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GiB
            # vLLM's attention uses AMX without asking Linux for it, which kills the process.
            torch.cpu._init_amx()
        from vllm import LLM, SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        self._answers = work.metric.answers
        defaults = {
            "max_model_len": work.context,
            "enable_prefix_caching": True,
            "generation_config": "vllm",
            "structured_outputs_config": {"backend": "xgrammar"},
            # The CPU's own default of 128 would compute up to 127 shared tokens anew for every row.
            "block_size": 32,
        }
        given = {name.replace("-", "_"): _value(text) for name, text in vllm_args.items()}
        self._llm = LLM(str(work.model), **(defaults | given))
        schema = StructuredOutputsParams(json=_answer_type(self._answers).model_json_schema())
        self._params = {
            "limit": SamplingParams(temperature=0.0, max_tokens=1, detokenize=False),
            "guided-xgrammar": SamplingParams(
                temperature=0.0, max_tokens=LONGEST_ANSWER, structured_outputs=schema
            ),
            "free-text": SamplingParams(temperature=0.0, max_tokens=LONGEST_ANSWER),
        }

    def forget(self) -> None:
        """Empty the prefix cache."""
        self._llm.reset_prefix_cache()

    def run(self, way: str, load: Load, rows: int, out: Path) -> Any:
        """Send the first `rows` to vLLM at once, and parse what comes back."""
        params = self._params[way]
        if way == "limit":
            prompts = [{"prompt_token_ids": ids} for ids in load.extended[:rows]]
            return self._llm.generate(prompts, params, use_tqdm=False), None
        outputs = self._llm.chat(load.messages[:rows], params, use_tqdm=False)
        texts = [output.outputs[0].text for output in outputs]
        return outputs, [is_answer(self._answers, text) for text in texts]

    def look(self, way: str, result: Any) -> Outcome:
        """Count valid answers and written tokens."""
        outputs, valid = result
        return Outcome(
            None if valid is None else sum(valid),
            sum(len(output.outputs[0].token_ids) for output in outputs),
        )


class Outlines:
    """outlines' `Generator.batch` on transformers: under a schema, and as free text."""

    batch_sizes: ClassVar[dict[str, int]] = {
        "outlines-transformers": 16,
        "outlines-transformers-batch8": 8,
        "outlines-transformers-batch32": 32,
        "free-text-transformers": 16,
    }
    ways = (*batch_sizes,)
    caches = False

    def __init__(self, work: Workload, vllm_args: dict[str, str]) -> None:
        import outlines
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._answers = work.metric.answers
        self._tokenizer = AutoTokenizer.from_pretrained(work.model, local_files_only=True)
        loaded = AutoModelForCausalLM.from_pretrained(work.model, local_files_only=True)
        model = outlines.from_transformers(
            loaded.to("cuda" if torch.cuda.is_available() else "cpu"), self._tokenizer
        )
        self._constrained = outlines.Generator(model, _answer_type(self._answers))
        self._free = outlines.Generator(model)

    def forget(self) -> None:
        """Do nothing: nothing is kept from one batch to the next."""

    def run(self, way: str, load: Load, rows: int, out: Path) -> Any:
        """Send the first `rows` in batches, and parse what comes back."""
        from outlines.inputs import Chat

        generator = self._free if "free-text" in way else self._constrained
        prompts = [Chat(messages) for messages in load.messages[:rows]]
        size, texts = self.batch_sizes[way], []
        for start in range(0, rows, size):
            texts += generator.batch(
                prompts[start : start + size], max_new_tokens=LONGEST_ANSWER, do_sample=False
            )
        return texts, [is_answer(self._answers, text) for text in texts]

    def look(self, way: str, result: Any) -> Outcome:
        """Count valid answers and written tokens."""
        texts, valid = result
        # The text comes without its ids: they are counted anew, with one for the end.
        ids = self._tokenizer(texts, add_special_tokens=False)["input_ids"]
        return Outcome(sum(valid), sum(1 + len(row) for row in ids))


HOSTS: tuple[type[Host], ...] = (LocaljudgeVllm, Vllm, LocaljudgeTransformers, Outlines)


def installed_ways() -> list[str]:
    """Return the ways that can be taken here; free text by transformers only where vLLM is not."""
    ways = [way for host in HOSTS for way in host.ways]
    if not find_spec("vllm"):
        return [way for way in ways if way not in (*Vllm.ways, *LocaljudgeVllm.ways)]
    ways.remove("free-text-transformers")
    return [way for way in ways if "vllm" in ENGINES or way not in LocaljudgeVllm.ways]


def is_answer(answers: Closed, text: str) -> bool:
    """Say whether the first JSON object in `text` is an allowed answer, whatever surrounds it.

    localjudge itself accepts nothing around an answer; this is in favour of free text.
    """
    found = re.search(r"\{[^{}]*\}", text)
    try:
        answers.parse(found.group() if found else text)
    except ValueError:
        return False
    return True


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _answer_type(answers: Closed) -> Any:
    """Return the pydantic model of an answer, as users of vLLM and outlines give a schema."""
    from pydantic import create_model

    return create_model("Answer", output=(Literal[answers.values], ...))
