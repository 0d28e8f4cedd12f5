"""Tokenizers of every type that chat models use, trained on a few sentences, and toy models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "Judge whether the answer is grounded, ungrounded, refused or not refused.",
    "The quick brown fox jumps over the lazy dog, and nobody minds at all.",
    'Reply with one JSON object: {"output": "positive"} or {"output": "negative"}.',
    'The scale runs from {"output": 1} to {"output": 5}, and 10 is the highest of all.',
    "system user assistant: Answer: Question: Text: very good, very bad, toxic, non-toxic.",
    "Überall schöne Straßen, très bon, c'est mauvais, 开心 难过 普通.",
    "INST SYS",
] * 4

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] +"
    " '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
LLAMA2 = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ '[INST] <<SYS>>\n' + message['content'] + '\n<</SYS>>\n\n' }}{% else %}"
    "{{ message['content'] + ' [/INST]' }}{% endif %}{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\n' +"
    " message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
DEEPSEEK = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ message['content'] }}{% else %}{{ '<|User|>' + message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|Assistant|><think>\n' }}{% endif %}"
)


# Gemma registers these beside its vocabulary, although they are ordinary text.
GEMMA_ADDED = ("\n", "\n\n", "▁▁", "▁▁▁", "<table>", "<h1>")


def _byte_level(special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def _sentencepiece_bpe(special: list[str], *, legacy: bool) -> Tokenizer:
    """Llama-2 and Gemma: BPE over text whose spaces are `▁`, with bytes for what is unknown."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    replace = normalizers.Replace(" ", "▁")
    if legacy:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special + bytes_, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return _only_special_added(tokenizer, special)


def _unigram(special: list[str], *, alphabet: str = "") -> Tokenizer:
    """SentencePiece unigram: its vocabulary holds control and byte tokens like any other piece."""
    pieces = [(token, 0.0) for token in special] + [(f"<0x{b:02X}>", -9.0) for b in range(256)]
    words = {"▁" + word for text in CORPUS for word in text.split()}
    pieces += [(word, -5.0) for word in sorted(words)]
    letters = {char for text in CORPUS for char in text if char != " "} | {"▁", *alphabet}
    known = {piece for piece, _ in pieces}
    pieces += [(char, -7.0) for char in sorted(letters - known)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")]
    )
    return tokenizer


def _only_special_added(tokenizer: Tokenizer, special: list[str]) -> Tokenizer:
    """Take the byte tokens out of the added ones: real models have them in the vocabulary only."""
    description = json.loads(tokenizer.to_str())
    description["added_tokens"] = [
        token for token in description["added_tokens"] if token["content"] in special
    ]
    return Tokenizer.from_str(json.dumps(description))


def _with_pieces(tokenizer: Tokenizer, pieces: tuple[str, ...]) -> Tokenizer:
    """Put pieces of BPE into the vocabulary, each with the merge that makes it."""
    description = json.loads(tokenizer.to_str())
    model = description["model"]
    for piece in pieces:
        model["vocab"].setdefault(piece, len(model["vocab"]))
        if piece in ("\n\n", "▁▁", "▁▁▁"):
            model["merges"].append([piece[:-1], piece[-1]])
    return Tokenizer.from_str(json.dumps(description))


def _wrap(
    tokenizer: Tokenizer,
    *,
    bos: str | None,
    eos: str,
    template: str | None,
    adds_bos: bool = False,
    plain_added: tuple[str, ...] = ("<think>", "</think>"),
) -> PreTrainedTokenizerFast:
    # Some models add tokens that are not marked special; they are matched in text all the same.
    tokenizer.add_tokens([AddedToken(token, special=False) for token in plain_added])
    if adds_bos and bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos)
    wrapped.chat_template = template
    return wrapped


def _chatml() -> PreTrainedTokenizerFast:
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return _wrap(_byte_level(special), bos="<|im_start|>", eos="<|im_end|>", template=CHATML)


def _llama3() -> PreTrainedTokenizerFast:
    special = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    return _wrap(
        _byte_level(special),
        bos="<|begin_of_text|>",
        eos="<|eot_id|>",
        template=LLAMA3,
        adds_bos=True,
    )


def _llama2() -> PreTrainedTokenizerFast:
    special = ["<unk>", "<s>", "</s>"]
    tokenizer = _sentencepiece_bpe(special, legacy=True)
    return _wrap(tokenizer, bos="<s>", eos="</s>", template=LLAMA2, adds_bos=True)


def _gemma() -> PreTrainedTokenizerFast:
    special = ["<unk>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"]
    tokenizer = _with_pieces(_sentencepiece_bpe(special, legacy=False), GEMMA_ADDED)
    added = (*GEMMA_ADDED, "<think>", "</think>")
    return _wrap(
        tokenizer, bos="<bos>", eos="<eos>", template=GEMMA, adds_bos=True, plain_added=added
    )


def _deepseek() -> PreTrainedTokenizerFast:
    special = ["<unk>", "<s>", "</s>", "<|User|>", "<|Assistant|>"]
    tokenizer = _unigram(special)
    tokenizer.add_special_tokens(special)
    return _wrap(tokenizer, bos="<s>", eos="</s>", template=DEEPSEEK)


def _nfkc() -> PreTrainedTokenizerFast:
    """A tokenizer that changes characters, and whose template's marks are no added tokens."""
    special = ["<unk>", "<s>", "</s>"]
    ascii_ = "".join(map(chr, range(0x21, 0x7F)))
    tokenizer = _unigram([*special, "<|User|>", "<|Assistant|>"], alphabet=ascii_)
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.add_special_tokens(special)
    return _wrap(tokenizer, bos="<s>", eos="</s>", template=DEEPSEEK)


TOKENIZERS = {
    "chatml": _chatml,
    "llama3": _llama3,
    "llama2": _llama2,
    "gemma": _gemma,
    "deepseek": _deepseek,
    "nfkc": _nfkc,
}


@pytest.fixture(scope="session")
def tokenizers() -> dict[str, PreTrainedTokenizerFast]:
    """One tokenizer of each type, with its chat template."""
    return {name: build() for name, build in TOKENIZERS.items()}


@pytest.fixture(scope="session", params=sorted(TOKENIZERS))
def tokenizer(
    request: pytest.FixtureRequest, tokenizers: dict[str, Any]
) -> PreTrainedTokenizerFast:
    """Each tokenizer in turn."""
    return tokenizers[request.param]


@pytest.fixture(scope="session")
def chatml(tokenizers: dict[str, Any]) -> PreTrainedTokenizerFast:
    """The byte-level tokenizer with ChatML."""
    return tokenizers["chatml"]


def toy_model(
    folder: Path, tokenizer: PreTrainedTokenizerFast, *, seed: int = 0, positions: int = 4096
) -> Path:
    """Write a two-layer random Llama with `tokenizer` to `folder`, in float32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=positions,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.15,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory, tokenizers: dict[str, Any]) -> Path:
    """The folder of a two-layer random model with the ChatML tokenizer."""
    return toy_model(tmp_path_factory.mktemp("toy"), tokenizers["chatml"])
