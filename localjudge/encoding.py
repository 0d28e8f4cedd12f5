"""Messages to token ids, so that no text of a row can become a control token.

A chat template is rendered once with markers in place of the content. What the template itself
wrote is tokenised with control tokens, everything else without. The static beginning of a prompt
(its *head*) is tokenised once per metric; per row only the part behind it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from localjudge.errors import TemplateError, TokenizerError
from localjudge.tokens import ContentTokenizer, without_prefix_space

if TYPE_CHECKING:
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


class PromptEncoder:
    """Turns the text of prompts into token ids for one model.

    Args:
        tokenizer: The model's fast tokenizer.
        mode: `chat` uses the model's chat template; `raw` sends the bare text, for base models.

    Attributes:
        content: The tokenizer for all text that the template did not write itself.
        system_folded: Whether the template takes no system message, so that its text stands at the
            beginning of the user turn.

    Raises:
        TemplateError: the model has no chat template (in mode `chat`), or one that fails or does
            not show the content exactly once.
        TokenizerError: the tokenizer is not a fast one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, *, mode: PromptMode = "chat") -> None:
        self.content = ContentTokenizer(tokenizer)
        self.tokenizer = tokenizer
        self.mode = mode
        self._original = tokenizer.backend_tokenizer
        self._template = without_prefix_space(json.loads(self._original.to_str()))
        self._sequence_start = self._bos()
        self.system_folded, self._segments = self._render_template()

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of what the template puts around the content."""
        return sha256(json.dumps(self._segments).encode()).hexdigest()

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
            head = head + self.content.encode(content) + self._encode_template(segment)
        control, context = self._split_tail(tail)
        return PromptFrame(
            content=self.content,
            head=tuple(head),
            tail=(*self._encode_template(control), *self.content.encode(context)),
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
                if token_id in self.content.control_ids
            ),
            default=0,
        )
        return tail[:end], tail[end:]

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
        content: The tokenizer for the row's part.
        head: Ids before the row's part: template, system message, static part of the user turn.
        tail: Ids behind it: end of the user turn, beginning of the assistant's.
        context: The text of the tail behind its last control token: what the answer continues.
    """

    content: ContentTokenizer
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
            for body in _encode_each(self.content, bodies)
        ]


def _encode_each(
    content: ContentTokenizer, texts: Sequence[str]
) -> list[list[int] | TokenizerError]:
    try:
        return [*content.encode_batch(texts)]
    except TokenizerError as error:
        if len(texts) == 1:
            return [error]
    # Some text of many is at fault: find it by trying each alone.
    return [result for text in texts for result in _encode_each(content, [text])]


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
