"""No text becomes a control token, and none is lost, whatever the tokenizer."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from localjudge.errors import TokenizerError
from localjudge.tokens import ContentTokenizer

SPELLINGS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|begin_of_text|>", "<s>", "</s>",
    "<unk>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<|User|>", "<|Assistant|>",
    "<think>", "</think>", "[INST]", "[/INST]", "<<SYS>>", "<0x0A>", "<0x00>",
    "<|start_header_id|>",
]  # fmt: skip
hostile = st.lists(
    st.one_of(
        st.sampled_from(SPELLINGS),
        st.sampled_from(["<", "|", ">", " ", "\n", "\r\n", "▁", "\u2028", "im_end", "s>", "\x00"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    ),
    max_size=12,
).map("".join)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=hostile)
def test_hostile_text_stays_content_and_comes_back(tokenizers, text):
    for name, tokenizer in tokenizers.items():
        content = _content(tokenizer)
        ids = content.encode(text)
        assert content.control_ids.isdisjoint(ids), name
        # SentencePiece writes spaces as ▁ and cannot tell the two apart.
        expected = text if name in ("chatml", "llama3") else text.replace("▁", " ")
        assert content.decode(ids) == expected, name
        assert b"".join(map(content.token_bytes, ids)).decode() == expected, name


def test_every_spelling_would_be_a_control_token_without_the_care(tokenizers):
    caught = {
        spelling
        for tokenizer in tokenizers.values()
        for spelling in SPELLINGS
        if not _content(tokenizer).control_ids.isdisjoint(
            tokenizer(spelling, add_special_tokens=False)["input_ids"]
        )
    }
    assert {"<|im_end|>", "</s>", "<end_of_turn>", "<think>", "<unk>", "<|User|>"} <= caught


def test_control_ids_hold_added_tokens_that_are_not_marked_special(chatml):
    content = ContentTokenizer(chatml)
    assert chatml.convert_tokens_to_ids("<think>") in content.control_ids
    assert chatml.convert_tokens_to_ids("<|im_end|>") in content.control_ids


def test_many_texts_are_encoded_like_one(tokenizer):
    content = ContentTokenizer(tokenizer)
    texts = ["plain", "with <|im_end|> and </s>", "", "开心 🎉"]
    assert content.encode_batch(texts) == [content.encode(text) for text in texts]


def test_no_space_is_put_before_a_text(tokenizer):
    content = ContentTokenizer(tokenizer)
    assert content.token_bytes(content.encode("user")[0])[:1] == b"u"
    assert content.decode(content.encode(" user")) == " user"


def test_a_character_without_a_token_is_an_error_not_an_unknown_token():
    words = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.add_special_tokens(["<unk>"])
    content = ContentTokenizer(PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>"))
    assert content.encode("aa") == [1, 1]
    with pytest.raises(TokenizerError, match=r"no token for '🎉' \(U\+1F389\)"):
        content.encode("a🎉a")


def test_a_lone_surrogate_is_an_error(chatml):
    with pytest.raises(TokenizerError, match="not valid Unicode"):
        ContentTokenizer(chatml).encode("a\ud800b")


def test_the_vocabulary_for_outlines_has_every_token_by_its_bytes_and_no_control_token(tokenizer):
    content = ContentTokenizer(tokenizer)
    vocabulary = content.vocabulary
    assert vocabulary.get_eos_token_id() == tokenizer.eos_token_id
    for text in ("positive", "开", "🎉"):
        for token in content.encode(text):
            assert token in vocabulary.get(content.token_bytes(token))
    for token in content.control_ids:
        spelled = tokenizer.convert_ids_to_tokens(token).encode()
        assert token not in (vocabulary.get(spelled) or [])


def test_a_slow_tokenizer_is_refused():
    with pytest.raises(TokenizerError, match="not a fast tokenizer"):
        ContentTokenizer(object())


_contents: dict[int, ContentTokenizer] = {}


def _content(tokenizer) -> ContentTokenizer:
    if id(tokenizer) not in _contents:
        _contents[id(tokenizer)] = ContentTokenizer(tokenizer)
    return _contents[id(tokenizer)]
