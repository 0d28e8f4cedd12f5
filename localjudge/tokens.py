"""Text to token ids and back, without control tokens.

Whatever a text says, here it becomes content: the ids of control tokens (`<|im_end|>`) and of added
tokens (`<think>`) are never produced, however it spells them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from localjudge.errors import TokenizerError

if TYPE_CHECKING:
    from outlines_core import Vocabulary
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

_BYTE_LITERAL = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class ContentTokenizer:
    """A model's tokenizer, for text that is content and nothing else.

    Args:
        tokenizer: The model's fast tokenizer.

    Attributes:
        control_ids: Ids of all control and added tokens: no text becomes one of them.

    Raises:
        TokenizerError: the tokenizer is not a fast one, or cannot be taken apart.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise TokenizerError(
                f"{type(tokenizer).__name__} is not a fast tokenizer",
                hint="the model folder needs a tokenizer.json",
            )
        description = json.loads(backend.to_str())
        self.control_ids = frozenset(tokenizer.all_special_ids) | frozenset(
            tokenizer.added_tokens_decoder
        )
        self._plain = without_prefix_space(description | {"added_tokens": []})
        self._byte_level = "ByteLevel" in json.dumps(description["decoder"])
        self._stop_id: int | None = tokenizer.eos_token_id

    @property
    def stop_id(self) -> int:
        """Id of the end-of-sequence token.

        Raises:
            TokenizerError: the tokenizer has none, so that written text could not end.
        """
        if self._stop_id is None:
            raise TokenizerError("the tokenizer has no end-of-sequence token")
        return self._stop_id

    def encode(self, text: str) -> list[int]:
        """Tokenise `text` as content: whatever it says, it becomes no control or added token.

        Raises:
            TokenizerError: the tokenizer has no token for some character, or `text` is not valid
                Unicode.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenise many texts as content; see `encode`."""
        try:
            encoded = self._plain.encode_batch_fast(list(texts), add_special_tokens=False)
        except (UnicodeEncodeError, TypeError) as error:
            raise TokenizerError(f"the text is not valid Unicode: {error}") from None
        return [
            list(encoding.ids)
            if self.control_ids.isdisjoint(encoding.ids) and "<0x" not in text
            else self._encode_in_pieces(text)
            for text, encoding in zip(texts, encoded, strict=True)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of content ids; the inverse of `encode`."""
        return str(self._plain.decode(list(ids), skip_special_tokens=False))

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of text for which one content token stands."""
        token = self._plain.id_to_token(token_id)
        if token is None:
            raise TokenizerError(f"the tokenizer has no content token {token_id}")
        if self._byte_level:
            table = _byte_level_table()
            return bytes(table[char] for char in token)
        if _BYTE_LITERAL.fullmatch(token):
            return bytes([int(token[3:5], 16)])
        return str(token).replace("▁", " ").encode()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Every content token by its exact bytes, for outlines_core."""
        from outlines_core import Vocabulary

        tokens: dict[bytes, list[int]] = {}
        for token_id in self._plain.get_vocab().values():
            if token_id not in self.control_ids:
                tokens.setdefault(self.token_bytes(token_id), []).append(token_id)
        tokens.pop(b"", None)
        return Vocabulary(self.stop_id, tokens)

    def _encode_in_pieces(self, text: str) -> list[int]:
        """Tokenise text that spells out a control token, by cutting the spelling apart."""
        encoding = self._plain.encode(text, add_special_tokens=False)
        cuts = []
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            spelled_byte = _BYTE_LITERAL.fullmatch(text, start, end) and end - start > 1
            if token_id not in self.control_ids and not spelled_byte:
                continue
            if end - start < 2:
                char = text[start:end]
                raise TokenizerError(
                    f"the tokenizer has no token for {char!r} (U+{ord(char or chr(0)):04X})",
                    hint="use a model whose tokenizer covers all of Unicode",
                )
            cuts.append(start + 1)
        if not cuts:
            return list(encoding.ids)
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        return [token_id for piece in pieces for token_id in self._encode_in_pieces(piece)]


def without_prefix_space(description: dict[str, Any]) -> Tokenizer:
    """Build a tokenizer from its JSON; it adds nothing before a text and drops nothing in decoding.

    SentencePiece-type tokenizers put a space before every text. A part of a prompt is not the
    beginning of a text, so there it would be a character that nobody wrote.
    """
    from tokenizers import Tokenizer

    def clean(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        for key in ("normalizers", "pretokenizers", "decoders"):
            if key in part:
                kept = [clean(item) for item in part[key]]
                part = part | {key: [item for item in kept if item is not None]}
        kind = part.get("type")
        if kind == "Prepend" or (kind == "Strip" and "content" in part):
            return None
        if kind == "Metaspace":
            return part | {"prepend_scheme": "never"}
        if kind == "ByteLevel":
            return part | {"add_prefix_space": False}
        return part

    edited = {
        key: clean(value) if key in ("normalizer", "pre_tokenizer", "decoder") else value
        for key, value in description.items()
    }
    edited |= {"post_processor": None, "truncation": None, "padding": None}
    try:
        return Tokenizer.from_str(json.dumps(edited))
    except Exception as error:  # the tokenizers library raises bare Exception
        raise TokenizerError(f"the tokenizer cannot be taken apart: {error}") from error


@cache
def _byte_level_table() -> dict[str, int]:
    """Return the byte for each character of the alphabet of byte-level BPE.

    Printable bytes of Latin-1 stand for themselves, the others for U+0100 and what follows.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + index): byte for index, byte in enumerate(others)
    }
