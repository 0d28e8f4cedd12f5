"""The vLLM engine: batches of prompts at the speed of reading, on a GPU or on vLLM's CPU build.

One prompt is one request for one token, with the log-probabilities of the tokens where the answers
part. What prompts have in common is read once: vLLM's prefix cache keeps it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localjudge.engines.base import Choice, Draft, Failure, State, TokenIds
from localjudge.engines.checkpoint import stop_ids
from localjudge.engines.drafts import finished_draft
from localjudge.engines.engine_args import parse_engine_args
from localjudge.engines.vllm_loading import (
    import_vllm,
    load_llm,
    one_line,
    resolved_settings,
    shut_llm,
    woken_by_death,
)
from localjudge.errors import ConfigError, EngineError
from localjudge.models import load_tokenizer
from localjudge.offline import go_offline
from localjudge.tokens import ContentTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast
    from vllm import LLM, CompletionOutput, SamplingParams

    from localjudge.tree import AnswerTree

_DTYPES = ("auto", "float32", "bfloat16", "float16")
_TOKENS_A_REQUEST = 128  # the most whose log-probabilities vLLM returns


class VllmEngine:
    """A causal language model run by vLLM.

    With vLLM's CPU build the model runs in this process, otherwise in one of vLLM's own; a script
    that opens an engine there needs the usual `if __name__ == "__main__":`.

    Args:
        folder: A checked model folder.
        device: `auto`, `cpu` or `cuda`; it must be what the installed build of vLLM is for. Which
            GPUs are used is set with the variable CUDA_VISIBLE_DEVICES.
        dtype: `auto`, `float32`, `bfloat16` or `float16`. `auto` is vLLM's choice on a GPU; on a
            CPU it keeps the checkpoint's, or takes float32 where half precision is slow.
        engine_args: Further options of vLLM, as text; see `parse_engine_args`.
        own_process: Whether the model runs in a process of its own; by default as said above.
        embed: Whether it is loaded to read hidden states: vLLM then can do nothing else with it,
            and without, it cannot do that.

    Attributes:
        llm: vLLM's own object, or None once the engine is closed.

    Raises:
        ConfigError: an option is unknown, out of its range or not allowed.
        ModelError: the model's folder is damaged or not allowed.
        EngineError: the model cannot be loaded.
    """

    name = "vllm"

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        device: str = "auto",
        dtype: str = "auto",
        engine_args: Mapping[str, str] | None = None,
        own_process: bool | None = None,
        embed: bool = False,
    ) -> None:
        if dtype not in _DTYPES:
            raise ConfigError(f"{dtype!r} is not {', '.join(_DTYPES)}", field="dtype")
        path = Path(folder).resolve()
        go_offline()
        on_cpu = import_vllm()
        self._in_process = on_cpu if own_process is None else not own_process
        _check_device(device, "cpu" if on_cpu else "cuda")
        given = parse_engine_args(engine_args or {})
        self.tokenizer = load_tokenizer(path)
        self._content = ContentTokenizer(self.tokenizer)
        self.llm: LLM | None = load_llm(
            path,
            dtype=dtype,
            given=given,
            on_cpu=on_cpu,
            in_process=self._in_process,
            embed=embed,
        )
        self._embeds = embed
        self._known = known = range(self.llm.model_config.get_vocab_size())
        self._stop_ids = frozenset(filter(known.__contains__, stop_ids(path, self.tokenizer)))
        self._unspoken = [i for i in _unspoken_ids(self.tokenizer, self._content) if i in known]
        self.context_length = int(self.llm.model_config.max_model_len)
        self.chunk_rows = 128 if on_cpu else 2048
        self.fingerprint: Mapping[str, Any] = {
            "engine": self.name,
            "device": "cpu" if on_cpu else "cuda",
            **resolved_settings(self.llm),
        }

    def choose(
        self, prompts: Sequence[TokenIds], trees: Sequence[AnswerTree]
    ) -> list[Choice | Failure]:
        """Read the model's next-token probabilities at every branch of each prompt's tree.

        The requests of one prompt follow each other, so that all but the first find it cached.
        """
        sequences: list[list[int]] = []
        params: list[SamplingParams] = []
        reading: dict[int, list[tuple[tuple[int, ...], SamplingParams]]] = {
            id(tree): [(b.path, _reading(part)) for b in tree.branches for part in _parts(b.tokens)]
            for tree in trees
        }
        for prompt, tree in zip(prompts, trees, strict=True):
            for path, asked in reading[id(tree)]:
                sequences.append([*prompt, *path])
                params.append(asked)
        outputs = iter(self._generate(sequences, params))
        return [_choice(tree, [*islice(outputs, len(reading[id(tree)]))]) for tree in trees]

    def write(
        self, prompts: Sequence[TokenIds], pattern: str, max_tokens: int
    ) -> list[Draft | Failure]:
        """Continue each prompt greedily; vLLM masks what outlines_core's index does not allow."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=0,
            stop_token_ids=sorted(self._stop_ids),
            structured_outputs=StructuredOutputsParams(regex=pattern),
            logit_bias=dict.fromkeys(self._unspoken, -100.0) or None,
            detokenize=False,
        )
        return self._drafts(prompts, params, self._stop_ids)

    def think(self, prompts: Sequence[TokenIds], max_tokens: int) -> list[Draft | Failure]:
        """Continue each prompt greedily, up to the first control token."""
        from vllm import SamplingParams

        stops = self._stop_ids | {i for i in self._content.control_ids if i in self._known}
        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=0,
            stop_token_ids=sorted(stops),
            detokenize=False,
        )
        return self._drafts(prompts, params, stops)

    def embed(self, prompts: Sequence[TokenIds]) -> list[State | Failure]:
        """Read the hidden state behind each prompt's last token; see `load_llm`."""
        if self.llm is None:
            raise EngineError("the engine is closed")
        if not self._embeds:
            raise EngineError("vLLM was loaded to answer, not to read hidden states")
        from vllm.exceptions import VLLMClientError

        asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        try:
            with woken_by_death(self.llm):
                outputs = self.llm.encode(asked, pooling_task="embed", use_tqdm=False)
        except (VLLMClientError, ValueError) as error:
            if len(prompts) == 1:
                return [Failure(f"vLLM refuses the prompt: {error}")]
            return [each for prompt in prompts for each in self.embed([prompt])]
        except Exception as error:  # whatever it is, vLLM's state is unknown behind it
            raise EngineError(f"vLLM failed: {one_line(error)}") from error
        if [output.prompt_token_ids for output in outputs] != [[*prompt] for prompt in prompts]:
            raise EngineError("vLLM returned results for other prompts than it was given")
        return [output.outputs.data.float().numpy() for output in outputs]

    def _drafts(
        self, prompts: Sequence[TokenIds], params: SamplingParams, stops: Set[int]
    ) -> list[Draft | Failure]:
        outputs = self._generate([list(prompt) for prompt in prompts], [params] * len(prompts))
        return [
            output
            if isinstance(output, Failure)
            else finished_draft(self._content, output.token_ids, stops)
            for output in outputs
        ]

    def close(self) -> None:
        """Free the model; vLLM's own process ends."""
        if self.llm is not None:
            shut_llm(self.llm, self._in_process)
            self.llm = None
            gc.collect()

    def _generate(
        self, prompts: Sequence[list[int]], params: Sequence[SamplingParams]
    ) -> list[CompletionOutput | Failure]:
        """Run each prompt with its parameters; one that vLLM refuses costs only itself."""
        from vllm.exceptions import VLLMClientError

        if self.llm is None:
            raise EngineError("the engine is closed")
        if self._embeds:
            raise EngineError("vLLM was loaded to read hidden states, and cannot answer")
        refused: dict[int, Failure] = {}
        try:
            for index, (prompt, each) in enumerate(zip(prompts, params, strict=True)):
                try:
                    self.llm.enqueue([{"prompt_token_ids": prompt}], [each], use_tqdm=False)
                except (VLLMClientError, ValueError) as error:
                    refused[index] = Failure(f"vLLM refuses the prompt: {error}")
            with woken_by_death(self.llm):
                finished = self.llm.wait_for_completion(use_tqdm=False)
        except Exception as error:  # whatever it is, vLLM's state is unknown behind it
            raise EngineError(f"vLLM failed: {one_line(error)}") from error
        accepted = [index for index in range(len(prompts)) if index not in refused]
        if [output.prompt_token_ids for output in finished] != [prompts[i] for i in accepted]:
            raise EngineError("vLLM returned results for other prompts than it was given")
        outputs = {i: output.outputs[0] for i, output in zip(accepted, finished, strict=True)}
        return [refused[i] if i in refused else _finished(outputs[i]) for i in range(len(prompts))]


def _reading(tokens: Sequence[int]) -> SamplingParams:
    """Ask for the log-probabilities of `tokens` at the next place; the token itself is dropped."""
    from vllm import SamplingParams

    return SamplingParams(
        max_tokens=1,
        temperature=0,
        logprob_token_ids=list(tokens),
        flat_logprobs=True,
        ignore_eos=True,
        detokenize=False,
        skip_clone=True,  # they are the same for thousands of requests, and nobody changes them
    )


def _parts(tokens: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(tokens), _TOKENS_A_REQUEST):
        yield tokens[start : start + _TOKENS_A_REQUEST]


def _choice(tree: AnswerTree, outputs: Sequence[CompletionOutput | Failure]) -> Choice | Failure:
    """Join one prompt's outputs, one for each part of each branch, to a choice."""
    waiting = iter(outputs)
    read = []
    for branch in tree.branches:
        log_probs: dict[int, float] = {}
        for _ in _parts(branch.tokens):
            output = next(waiting)
            if isinstance(output, Failure):
                return output
            log_probs.update(zip(output.logprobs.token_ids, output.logprobs.logprobs, strict=True))
        missing = [token for token in branch.tokens if token not in log_probs]
        if missing:
            raise EngineError(f"vLLM returned no log-probability for the tokens {missing[:5]}")
        read.append([log_probs[token] for token in branch.tokens])
    return tree.choice(read)


def _finished(output: CompletionOutput) -> CompletionOutput | Failure:
    if output.finish_reason in ("stop", "length"):
        return output
    return Failure(f"vLLM ended the request with {output.finish_reason!r}")


def _check_device(asked: str, built_for: str) -> None:
    if asked in ("auto", built_for):
        return
    if asked.startswith(f"{built_for}:"):
        raise ConfigError(
            f"vLLM does not choose a GPU by {asked!r}",
            field="device",
            hint="name the GPUs in the variable CUDA_VISIBLE_DEVICES",
        )
    raise ConfigError(
        f"the build of vLLM that is installed is for {built_for}, not for {asked!r}",
        field="device",
        hint="use `auto`, or the engine transformers",
    )


def _unspoken_ids(tokenizer: PreTrainedTokenizerFast, content: ContentTokenizer) -> list[int]:
    """Return the control tokens that vLLM's index for outlines takes for plain text."""
    hidden = set(tokenizer.convert_tokens_to_ids(tokenizer.all_special_tokens))
    return sorted(content.control_ids - hidden)
