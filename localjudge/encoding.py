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

from localjudge.errors import ConfigError, TemplateError, TokenizerError
from localjudge.thinking import Section, close_section
from localjudge.tokens import ContentTokenizer, same_lines

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PromptMode = Literal["chat", "raw"]

# A template that escapes, cuts, re-cases or re-wraps content does not show these as they are.
_SYSTEM, _USER = "Sy<'&\"sTem", "Us<'&\"eR"
_LONG = "".join(f"\n\n  Line {number} OF 'many' <&> \\n {{{{x}}}}." for number in range(200))
_TEMPLATE_HINT = "use prompt mode `raw`, or a model with an ordinary chat template"
# Some templates print today's date; the same prompt must not change overnight.
_FIXED_DATE = "01 Jan 2025"
_TEMPLATE_SETTINGS: dict[str, Any] = {
    "date_string": _FIXED_DATE,
    "strftime_now": lambda _format: _FIXED_DATE,
}


class PromptEncoder:
    """Turns the text of prompts into token ids for one model.

    Args:
        tokenizer: The model's fast tokenizer.
        mode: `chat` uses the model's chat template; `raw` sends the bare text, for base models.
        think: Whether prompts end where the model writes its thoughts, instead of the answer.

    Attributes:
        content: The tokenizer for all text that the template did not write itself.
        system_folded: Whether the template takes no system message, so that its text stands at the
            beginning of the user turn.

    Raises:
        TemplateError: the model has no chat template (in mode `chat`), or one that fails, does not
            show the content exactly once and as it is, or leaves a section for thinking open.
        ConfigError: the model is to think, and its template has no section for that.
        TokenizerError: the tokenizer is not a fast one, or loses line breaks.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        *,
        mode: PromptMode = "chat",
        think: bool = False,
    ) -> None:
        self.tokenizer = tokenizer
        self.mode = mode
        self._think = think
        self.system_folded, self._segments, self._section = self._render_template()
        self.content = ContentTokenizer(tokenizer, self._written)
        if self._section is not None:
            # Engines know the tokenizer without the template.
            _check_closing(ContentTokenizer(tokenizer), self._section)
        self._original = tokenizer.backend_tokenizer
        self._sequence_start = self._bos()
        _check_line_breaks(self.content)

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of what the template puts around the content."""
        return sha256(json.dumps(self._written).encode()).hexdigest()

    @property
    def _written(self) -> list[str]:
        closing = [] if self._section is None else [self._section.before + self._section.closing]
        return [*self._segments, *closing]

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
            head = head + self.content.encode(content) + self.content.encode_template(segment)
        tail_ids, context = self._encode_tail(tail)
        if self._section is None:
            return PromptFrame(self.content, tuple(head), tail_ids, context)
        closing, context = self._encode_tail(self._section.closing)
        before = self._section.before
        return PromptFrame(self.content, tuple(head), tail_ids, context, before, closing)

    def _encode_tail(self, tail: str) -> tuple[tuple[int, ...], str]:
        """Return the ids of what the template writes, and its text behind the control tokens."""
        end = self.content.control_end(tail)
        control, context = tail[:end], tail[end:]
        return (*self.content.encode_template(control), *self.content.encode(context)), context

    def _bos(self) -> int | None:
        """Return the beginning-of-sequence id if this tokenizer puts one before every text."""
        bare = self._original.encode("a", add_special_tokens=False).ids
        full = self._original.encode("a", add_special_tokens=True).ids
        bos: int | None = self.tokenizer.bos_token_id
        return bos if bos is not None and full[:1] == [bos] and bare[:1] != [bos] else None

    def _render_template(self) -> tuple[bool, list[str], Section | None]:
        """Return whether the system text is folded, the template's own text, and the section."""
        if self.mode == "raw" and not self._think:
            return True, ["", "\n"], None
        if self.mode == "raw":
            raise ConfigError(
                "a model thinks by its chat template, which prompt mode `raw` does not use",
                field="think",
            )
        if not self.tokenizer.chat_template:
            raise TemplateError(
                "the model has no chat template",
                hint="use an instruction-tuned model, or prompt mode `raw` for a base model",
            )
        try:
            return False, *self._segments_around(system=_SYSTEM, user=_USER)
        except TemplateError:
            # A template that refuses, or drops, a system message may still take the user turn.
            return True, *self._segments_around(user=_USER)

    def _segments_around(self, **markers: str) -> tuple[list[str], Section | None]:
        """Return what the template writes around the messages, whatever they say."""
        *answering, tail = self._steady_segments(markers, think=False)
        if not self._think:
            return [*answering, close_section(tail)], None
        *thinking, opening = self._steady_segments(markers, think=True)
        section = Section.find(opening, tail)
        if section is None:
            raise ConfigError(
                "the model's chat template has no section for thinking",
                field="think",
                hint="leave thinking off, or use a model that was trained to think",
            )
        return [*thinking, section.opening], section

    def _steady_segments(self, markers: dict[str, str], *, think: bool) -> list[str]:
        short = self._cut_template(markers, think)
        long = {role: text + _LONG for role, text in markers.items()}
        if short != self._cut_template(long, think):
            raise TemplateError(
                "the model's chat template depends on what the messages say", hint=_TEMPLATE_HINT
            )
        return short

    def _cut_template(self, markers: dict[str, str], think: bool) -> list[str]:
        messages = [{"role": role, "content": text} for role, text in markers.items()]
        # Templates call the switch by one of these names.
        settings = _TEMPLATE_SETTINGS | {"enable_thinking": think, "thinking": think}
        try:
            rendered = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True, **settings
            )
        except Exception as error:  # a template is a program: it can fail in any way
            raise TemplateError(f"the model's chat template fails: {error}") from error
        return _cut(str(rendered), *markers.values())


@dataclass(frozen=True, slots=True)
class PromptFrame:
    """What stands around a row in every prompt of one metric, as token ids.

    Attributes:
        content: The tokenizer for the row's part.
        head: Ids before the row's part: template, system message, static part of the user turn.
        tail: Ids behind it: end of the user turn, beginning of the assistant's.
        context: The text behind the last control token before the answer, which continues it.
        before: White space behind the model's thoughts.
        closing: Ids behind that, up to the answer. Without thinking there are none.
    """

    content: ContentTokenizer
    head: tuple[int, ...]
    tail: tuple[int, ...]
    context: str
    before: str = ""
    closing: tuple[int, ...] = ()

    def encode(self, bodies: Sequence[str]) -> list[list[int] | TokenizerError]:
        """Return the whole prompt for each row's part of the user turn.

        A body that the tokenizer cannot carry is an error in its place; the others are unaffected.
        """
        head, tail = list(self.head), list(self.tail)
        return [
            body if isinstance(body, TokenizerError) else head + body + tail
            for body in _encode_each(self.content, bodies)
        ]

    def close(self, ids: Sequence[int], thoughts: str) -> list[int]:
        """Return a prompt up to where the answer begins: with the thoughts, if the model thinks.

        Raises:
            TokenizerError: the tokenizer cannot carry the thoughts.
        """
        if not self.closing:
            return list(ids)
        return [*ids, *self.content.encode(thoughts + self.before), *self.closing]


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
                "the model's chat template does not show each message as it is, exactly once",
                hint=_TEMPLATE_HINT,
            )
        segments.append(before)
    return [*segments, rest]


def _check_closing(content: ContentTokenizer, section: Section) -> None:
    """Make sure that thoughts end at one token: it is how the engine sees that they do."""
    if content.encode_template(section.closing)[0] not in content.control_ids:
        raise ConfigError(
            "the mark that ends the model's thoughts is not one token of its tokenizer: "
            f"{section.closing.strip()}",
            field="think",
            hint="leave thinking off, or use another model",
        )


def _check_line_breaks(content: ContentTokenizer) -> None:
    """Make sure that line breaks stay: by them a model tells a row's text from the prompt's."""
    sample = "> a\n> b\n\nc"
    if not same_lines(sample, content.decode(content.encode(sample))):
        raise TokenizerError(
            "the tokenizer does not keep line breaks",
            hint="use another model: with this one, quoted text could not be told from the prompt",
        )
