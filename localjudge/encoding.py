"""Messages to token ids, so that no text of a row can become a control token.

A chat template is rendered once with markers in place of the content. What the template itself
wrote is tokenised with control tokens, everything else without. The static beginning of a prompt
(its *head*) is tokenised once per metric; per row only the part behind it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from localjudge.errors import TemplateError, TokenizerError

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

PromptMode = Literal["chat", "raw"]

_SYSTEM, _USER = "LOCALJUDGE0SYSTEM0", "LOCALJUDGE0USER0"
# Some templates print today's date; the same prompt must not change overnight.
_FIXED_DATE = "01 Jan 2025"
_TEMPLATE_SETTINGS: dict[str, Any] = {
    "enable_thinking": False,
    "thinking": False,
    "date_string": _FIXED_DATE,
    "strftime_now": lambda _format: _FIXED_DATE,
}
_BYTE_LITERAL = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class PromptEncoder:
    """Turns the text of prompts into token ids for one model.

    Args:
        tokenizer: The model's fast tokenizer.
        mode: `chat` uses the model's chat template; `raw` sends the bare text, for base models.

    Attributes:
        control_ids: Ids of all control and added tokens: none of them ever comes from a row.
        system_folded: Whether the template takes no system message, so that its text stands at the
            beginning of the user turn.

    Raises:
        TemplateError: the model has no chat template (in mode `chat`), or one that fails or does
            not show the content exactly once.
        TokenizerError: the tokenizer is not a fast one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, *, mode: PromptMode = "chat") -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise TokenizerError(
                f"{type(tokenizer).__name__} is not a fast tokenizer",
                hint="the model folder needs a tokenizer.json",
            )
        self.tokenizer = tokenizer
        self.mode = mode
        self.control_ids = frozenset(tokenizer.all_special_ids) | frozenset(
            tokenizer.added_tokens_decoder
        )
        description = json.loads(backend.to_str())
        self._original: Tokenizer = backend
        self._template = _without_prefix_space(description)
        self._plain = _without_prefix_space(description | {"added_tokens": []})
        self._byte_level = "ByteLevel" in json.dumps(description["decoder"])
        self._sequence_start = self._bos()
        self.system_folded, self._segments = self._render_template()

    def encode_text(self, text: str) -> list[int]:
        """Tokenise `text` as content: whatever it says, it becomes no control or added token.

        Raises:
            TokenizerError: the tokenizer has no token for some character, or `text` is not valid
                Unicode.
        """
        return self.encode_texts([text])[0]

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenise many texts as content; see `encode_text`."""
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
        """Return the text of content ids; the inverse of `encode_text`."""
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

    def frame(self, system: str, user_head: str) -> PromptFrame:
        """Tokenise what is the same in every prompt of a metric.

        Args:
            system: The whole system message.
            user_head: The static beginning of the user turn.
        """
        first, *middle, tail = self._segments
        contents = [system, user_head] if middle else [f"{system}\n\n{user_head}"]
        head = self._original.encode(first, add_special_tokens=False).ids if first else []
        if self._sequence_start is not None and head[:1] != [self._sequence_start]:
            head = [self._sequence_start, *head]
        for content, segment in zip(contents, [*middle, ""], strict=True):
            head = head + self.encode_text(content) + self._encode_template(segment)
        control, context = self._split_tail(tail)
        return PromptFrame(
            encoder=self,
            head=tuple(head),
            tail=(*self._encode_template(control), *self.encode_text(context)),
            context=context,
        )

    def _encode_template(self, segment: str) -> list[int]:
        return list(self._template.encode(segment, add_special_tokens=False).ids)

    def _split_tail(self, tail: str) -> tuple[str, str]:
        """Split the template's last part behind its last control token."""
        encoding = self._template.encode(tail, add_special_tokens=False)
        end = max(
            (
                offset[1]
                for token_id, offset in zip(encoding.ids, encoding.offsets, strict=True)
                if token_id in self.control_ids
            ),
            default=0,
        )
        return tail[:end], tail[end:]

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

    def _bos(self) -> int | None:
        """Return the beginning-of-sequence id if this tokenizer puts one before every text."""
        bare = self._original.encode("a", add_special_tokens=False).ids
        full = self._original.encode("a", add_special_tokens=True).ids
        bos: int | None = self.tokenizer.bos_token_id
        return bos if bos is not None and full[:1] == [bos] and bare[:1] != [bos] else None

    def _render_template(self) -> tuple[bool, list[str]]:
        """Return whether the system text is folded, and the template's own text around it."""
        if self.mode == "raw":
            return True, ["", "\n"]
        if not self.tokenizer.chat_template:
            raise TemplateError(
                "the model has no chat template",
                hint="use an instruction-tuned model, or prompt mode `raw` for a base model",
            )
        system, user = {"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER}
        try:
            return False, _cut(self._apply_template([system, user]), _SYSTEM, _USER)
        except TemplateError:
            # A template that refuses, or drops, a system message may still take the user turn.
            return True, _cut(self._apply_template([user]), _USER)

    def _apply_template(self, messages: list[dict[str, str]]) -> str:
        from jinja2.exceptions import TemplateError as JinjaError

        try:
            rendered = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **_TEMPLATE_SETTINGS
            )
        except (JinjaError, TypeError, KeyError, AttributeError) as error:
            raise TemplateError(f"the model's chat template fails: {error}") from error
        return _close_thinking(str(rendered))


@dataclass(frozen=True, slots=True)
class PromptFrame:
    """What stands around a row in every prompt of one metric, as token ids.

    Attributes:
        encoder: The encoder that made it.
        head: Ids before the row's part: template, system message, static part of the user turn.
        tail: Ids behind it: end of the user turn, beginning of the assistant's.
        context: The text of the tail behind its last control token: what the answer continues.
    """

    encoder: PromptEncoder
    head: tuple[int, ...]
    tail: tuple[int, ...]
    context: str

    def encode(self, bodies: Sequence[str]) -> list[list[int] | TokenizerError]:
        """Return the whole prompt for each row's part of the user turn.

        A body that the tokenizer cannot carry is an error in its place; the others are unaffected.
        """
        head, tail = list(self.head), list(self.tail)
        return [
            body if isinstance(body, TokenizerError) else head + body + tail
            for body in _each(self.encoder.encode_texts, bodies)
        ]


def _each(
    encode: Callable[[Sequence[str]], list[list[int]]], texts: Sequence[str]
) -> list[list[int] | TokenizerError]:
    try:
        return [*encode(texts)]
    except TokenizerError as error:
        if len(texts) == 1:
            return [error]
    # Some text of many is at fault: find it by trying each alone.
    return [result for text in texts for result in _each(encode, [text])]


def _without_prefix_space(description: dict[str, Any]) -> Tokenizer:
    """Build a tokenizer that puts nothing before a text, and drops nothing when decoding.

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


def _cut(rendered: str, *markers: str) -> list[str]:
    """Cut the rendered template at the markers, each of which must be there once, in order."""
    segments, rest = [], rendered
    for marker in markers:
        before, found, rest = rest.partition(marker)
        if not found or marker in rest or marker in before:
            raise TemplateError(
                "the model's chat template does not show each message exactly once, in order",
                hint="use prompt mode `raw`, or a model with an ordinary chat template",
            )
        segments.append(before)
    return [*segments, rest]


def _close_thinking(rendered: str) -> str:
    """Close a thinking section that the template leaves open although thinking is off."""
    opened = rendered.rstrip()
    return f"{opened}\n\n</think>\n\n" if opened.endswith("<think>") else rendered
