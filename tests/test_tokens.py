"""No text becomes a control token, and none is lost, whatever the tokenizer."""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from localjudge.engines.scripted import byte_tokenizer
from localjudge.errors import TokenizerError
from localjudge.templates import quote
from localjudge.tokens import ContentTokenizer, same_lines

SPELLINGS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|begin_of_text|>", "<s>", "</s>",
    "<unk>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<|User|>", "<|Assistant|>",
    "<think>", "</think>", "[INST]", "[/INST]", "<<SYS>>", "<0x0A>", "<0x00>",
    "<|start_header_id|>",
]  # fmt: skip
hostile = st.lists(
    st.one_of(
        st.sampled_from(SPELLINGS),
        st.sampled_from(
            [
                "<",
                "|",
                ">",
                " ",
                "\n",
                "\r\n",
                "▁",
                "\u2028",
                "im_end",
                "s>",
                "\x00",
                "＜",
                "\u0338",
                "\u0301",
                "0x0A",
                "＞",
                "<table>",
            ]
        ),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    ),
    max_size=12,
).map("".join)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=hostile)
def test_hostile_text_stays_content_and_comes_back(tokenizers, text):
    for name, tokenizer in tokenizers.items():
        content = _content(tokenizer)
        # SentencePiece writes spaces as ▁ and cannot tell the two apart.
        expected = text if name in ("chatml", "llama3") else text.replace("▁", " ")
        if name == "nfkc":
            expected = tokenizer.backend_tokenizer.normalizer.normalize_str(expected)
            if not same_lines(text, expected):
                with pytest.raises(TokenizerError, match="line break"):
                    content.encode(text)
                continue
        ids = content.encode(text)
        assert content.control_ids.isdisjoint(ids), name
        assert content.decode(ids) == expected, name
        assert b"".join(map(content.token_bytes, ids)).decode() == expected, name


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=hostile)
def test_every_line_of_a_quoted_text_stays_quoted(tokenizers, text):
    for name, tokenizer in tokenizers.items():
        content = _content(tokenizer)
        read = content.decode(content.encode(quote(text)))
        assert all(line.startswith(">") for line in read.splitlines()), name


def test_ordinary_pieces_that_are_added_tokens_too_stay_content(tokenizers):
    gemma = tokenizers["gemma"]
    content = _content(gemma)
    pieces = gemma.convert_ids_to_tokens(content.encode("a\n\nb\n   c"))
    assert [p for p in pieces if p.strip("abc")] == ["\n\n", "\n", "▁▁▁"]
    assert content.control_ids >= set(gemma.convert_tokens_to_ids(["<table>", "<h1>", "<think>"]))
    assert content.decode(content.encode("<table> <h1>")) == "<table> <h1>"


def test_runs_of_blanks_that_are_added_tokens_only_are_read_but_not_written():
    spaced = copy.deepcopy(byte_tokenizer())
    spaced.add_tokens([AddedToken("   ", special=False), AddedToken("the", special=False)])
    content = ContentTokenizer(spaced)
    run, the = spaced.convert_tokens_to_ids(["   ", "the"])
    assert content.control_ids.isdisjoint({run, the})
    assert content.encode("the   ") == [i for char in "the   " for i in content.encode(char)]
    assert content.token_bytes(run) == b"   "
    assert content.decode([the, run]) == "the   "
    assert run in content.vocabulary.get(b"   ")


def test_a_single_character_is_content_unless_the_template_writes_it():
    padded = copy.deepcopy(byte_tokenizer())
    padded.add_special_tokens({"pad_token": "!"})
    assert ContentTokenizer(padded).decode(ContentTokenizer(padded).encode("no!")) == "no!"
    with pytest.raises(TokenizerError, match="no token for '!'"):
        ContentTokenizer(padded, ["!user\n", "!judge\n"]).encode("no!")


def test_a_plain_added_token_is_control_where_the_template_writes_it():
    turns = copy.deepcopy(byte_tokenizer())
    turns.add_tokens([AddedToken("USER:", special=False)])
    [user] = turns.convert_tokens_to_ids(["USER:"])
    assert user not in ContentTokenizer(turns).control_ids
    content = ContentTokenizer(turns, ["USER: ", "\nJUDGE:"])
    assert user in content.control_ids
    assert content.decode(content.encode("USER: x")) == "USER: x"


@pytest.mark.parametrize(
    ("normaliser", "text"),
    [
        (normalizers.NFKC(), "＜0x0A＞Answer"),
        (normalizers.NFKC(), "\ufe640x0A\ufe65Answer"),
        (normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), "<\u03010x0A>A"),
    ],
)
def test_a_byte_that_only_the_normalised_text_spells_makes_no_line(tokenizers, normaliser, text):
    content = ContentTokenizer(_with_normalizer(tokenizers["deepseek"], normaliser))
    read = content.decode(content.encode(quote(text)))
    assert read.startswith("> <0x0A>A")


@pytest.mark.parametrize(
    ("normaliser", "text"),
    [
        (normalizers.Replace("¶", "\n"), "a¶Answer"),
        (normalizers.Replace(">", ""), "a"),
        (normalizers.Replace("\n", " "), "a\nb"),
    ],
)
def test_a_text_whose_lines_the_normaliser_moves_is_refused(tokenizers, normaliser, text):
    content = ContentTokenizer(_with_normalizer(tokenizers["deepseek"], normaliser))
    with pytest.raises(TokenizerError, match="moves, adds or drops a line break"):
        content.encode(quote(text))


def test_a_mark_of_the_template_that_is_one_piece_of_the_vocabulary_is_forbidden(tokenizers):
    nfkc = tokenizers["nfkc"]
    user = nfkc.convert_tokens_to_ids("<|User|>")
    content = ContentTokenizer(nfkc, ["<s>", "<|User|>", "<|Assistant|>"])
    assert user in content.control_ids
    for text in ("x <|User|> y", "x ＜|User|＞ y"):
        ids = content.encode(text)
        assert user not in ids
        assert content.decode(ids) == "x <|User|> y"


def test_a_mark_in_plain_text_is_spelled_otherwise_than_the_template_spells_it(tokenizers):
    llama2 = tokenizers["llama2"]
    content = ContentTokenizer(llama2, ["[INST] ", " [/INST]"])
    meant = content.encode_template(" [/INST]")
    assert len(meant) > 2  # the mark is several tokens long
    for text in ("x [/INST] y", " [/INST]", "[[/INST]]", "[/INST][/INST]"):
        ids = content.encode(text)
        assert content.decode(ids) == text
        for part in (meant, meant[1:], content.encode_template("[/INST]")):
            assert not any(ids[at : at + len(part)] == part for at in range(len(ids)))
    assert content.encode("a [b] c") == ContentTokenizer(llama2).encode("a [b] c")


def test_a_mark_that_cannot_be_spelled_otherwise_costs_its_row():
    content = ContentTokenizer(byte_tokenizer(), [" [/INST]"])
    with pytest.raises(TokenizerError, match="cannot spell it otherwise"):
        content.encode("x [/INST] y")


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


@pytest.mark.parametrize("unknown", ["<unk>", "?"])
def test_a_character_without_a_token_is_an_error_not_an_unknown_token(unknown):
    words = Tokenizer(models.WordLevel({unknown: 0, "a": 1}, unk_token=unknown))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.add_special_tokens([unknown])
    content = ContentTokenizer(PreTrainedTokenizerFast(tokenizer_object=words, unk_token=unknown))
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


def _with_normalizer(tokenizer, normaliser):
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.normalizer = normaliser
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")


_contents: dict[int, ContentTokenizer] = {}


def _content(tokenizer) -> ContentTokenizer:
    if id(tokenizer) not in _contents:
        _contents[id(tokenizer)] = ContentTokenizer(tokenizer)
    return _contents[id(tokenizer)]
