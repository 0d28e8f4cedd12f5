"""What the benchmarks judge: rows, a metric and prompts made here, and a toy model.

The rows are seeded nonsense of everyday words, about 40 words each and all different, so that
nothing has to be fetched. The rubric is the shipped metric `toxicity`, filled up with notes until
a whole prompt has about as many tokens as asked for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localjudge.encoding import PromptEncoder
from localjudge.library import find_metric
from localjudge.messages import Messages
from localjudge.metrics import Metric
from localjudge.tree import AnswerTree

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

WORDS = """
    about after again almost always apple around autumn bakery basket because before bicycle
    blanket bottle bread bridge bright broken brother bucket butter button candle captain carefully
    carpet castle chair cheese church clean clock cloudy coffee cold corner cousin curtain dinner
    doctor door downstairs early evening every family farmer fence finally flower forest friend
    garden gentle glass green grey guitar hammer harbour heavy hill honest hotel hungry island
    jacket kettle kitchen ladder lamp later lemon letter library little lonely machine market
    meadow mirror monday morning mountain music narrow neighbour never nobody noisy office often
    old onion open orange oven painter paper parcel pencil piano pillow plate pocket polite potato
    quiet quickly railway rainy river road sailor salt school seldom shelf shop silver sister slow
    small soap somewhere spoon station stone strange street sugar sunday table tailor teacher
    together tower train tuesday umbrella under upstairs usually valley village visitor wagon warm
    water weather whistle window winter wooden yellow yesterday
""".split()  # noqa: SIM905
VERBS = """
    asked borrowed bought brought carried cleaned closed counted dropped emptied fetched filled
    followed forgot found heard helped hid kept knew left lifted lost mended missed moved needed
    opened ordered painted pushed remembered sold sorted swept took waited walked wanted washed
""".split()  # noqa: SIM905
LONGEST_ANSWER = 32  # tokens; the JSON answers need about ten


def make_rows(count: int, *, seed: int = 0, words: int = 40) -> Iterator[dict[str, str]]:
    """Yield `count` rows with an `id` and a text of about `words` words, all different."""
    source = random.Random(seed)
    for number in range(1, count + 1):
        sentences, left = [], source.randint(words - 5, words + 5)
        while left > 0:
            size = min(left, source.randint(6, 12))
            chosen = [*source.choices(WORDS, k=size), source.choice(VERBS)]
            source.shuffle(chosen)
            sentences.append(" ".join(chosen).capitalize() + ".")
            left -= size + 1
        yield {"id": f"{seed}-{number}", "output": f"{' '.join(sentences)} Page {number}."}


@dataclass(frozen=True)
class Load:
    """Rows in a file, with the prompts that they become for one model.

    Attributes:
        path: JSON Lines file of the rows.
        ids: The rows' ids.
        messages: Each row's prompt as chat messages, for those who build prompts from text.
        prompts: Each row's prompt as token ids.
        extended: The same with the answers' common beginning appended: what `direct` reads.
        tree: The answers as tokens.
    """

    path: Path
    ids: list[str]
    messages: list[list[dict[str, str]]]
    prompts: list[list[int]]
    extended: list[list[int]]
    tree: AnswerTree


@dataclass(frozen=True)
class Workload:
    """A model, a metric, and the two loads: what is measured, and what warms up.

    Attributes:
        model: The model's folder.
        metric: The metric.
        measured: The rows whose judging is timed.
        warm_up: Other rows of the same kind.
        context: Tokens that the longest prompt and its answer need.
    """

    model: Path
    metric: Metric
    measured: Load
    warm_up: Load
    context: int

    @cached_property
    def shared(self) -> int:
        """How many tokens all prompts have in common at their beginning."""
        low, high = min(self.measured.extended), max(self.measured.extended)
        pairs = enumerate(zip(low, high, strict=False))
        return next((place for place, (a, b) in pairs if a != b), len(low))


def make_workload(
    model: Path, folder: Path, *, rows: int, warm_up: int, prompt_tokens: int
) -> Workload:
    """Write rows to `folder` and build everything that the ways need."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    encoder = PromptEncoder(tokenizer)
    metric = make_metric(encoder, prompt_tokens)
    loads = [
        _make_load(encoder, metric, folder / f"{name}.jsonl", [*make_rows(count, seed=seed)])
        for name, count, seed in (("rows", rows, 0), ("warm-up", warm_up, 1))
    ]
    longest = max(len(prompt) for load in loads for prompt in load.extended)
    return Workload(model, metric, *loads, context=longest + 2 * LONGEST_ANSWER)


def make_metric(encoder: PromptEncoder, prompt_tokens: int) -> Metric:
    """Return `toxicity` with so many more notes that a prompt has about `prompt_tokens` tokens."""
    shipped = find_metric("toxicity")
    values = {"text": next(make_rows(1))["output"]}
    source, notes = random.Random(0), list(shipped.notes)
    while True:
        metric = replace(shipped, notes=tuple(notes))
        messages = Messages(metric)
        frame = encoder.frame(messages.system, messages.user_head)
        [prompt] = frame.encode([messages.body(values)])
        note = f"Words such as {', '.join(source.sample(WORDS, k=8))} are non-toxic."
        if len(prompt) + len(encoder.content.encode(note)) > prompt_tokens:
            return metric
        notes.append(note)


def make_toy(folder: Path, tokenizer_of: Path) -> Path:
    """Write a two-layer random Llama with the tokenizer of another model, in bfloat16."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(
        tokenizer_of, local_files_only=True
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=8192,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _make_load(
    encoder: PromptEncoder, metric: Metric, path: Path, rows: list[dict[str, str]]
) -> Load:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    messages = Messages(metric)
    frame = encoder.frame(messages.system, messages.user_head)
    tree = AnswerTree.build(encoder.content, metric.answers.documents, frame.context)
    values = [{"text": row["output"]} for row in rows]
    prompts: list[Any] = frame.encode([messages.body(each) for each in values])
    return Load(
        path,
        ids=[row["id"] for row in rows],
        messages=[
            _chat(messages.system, messages.user(each), folded=encoder.system_folded)
            for each in values
        ],
        prompts=prompts,
        extended=[tree.extend(prompt) for prompt in prompts],
        tree=tree,
    )


def _chat(system: str, user: str, *, folded: bool) -> list[dict[str, str]]:
    if folded:
        return [{"role": "user", "content": f"{system}\n\n{user}"}]
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
