"""Text to token ids and back, without control tokens.

Whatever a text says, here it becomes content: the ids of control tokens (`<|im_end|>`) and of added
tokens that look like marks (`<think>`) are never produced, however it spells them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from localjudge.errors import TokenizerError

if TYPE_CHECKING:
    from outlines_core import Vocabulary
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

MARK = re.compile(r"<<?[^<>\n]+>>?|\[[^\[\]\n]+\]")
"""What chat templates set turns apart with: `<|user|>`, `<s>`, `<<SYS>>`, `[/INST]`."""

_BYTE_LITERAL = re.compile(r"<0x[0-9A-Fa-f]{2}>")


class ContentTokenizer:
    """A model's tokenizer, for text that is content and nothing else.

    Args:
        tokenizer: The model's fast tokenizer.
        template: The text that the chat template writes itself, around the content.

    Attributes:
        control_ids: Ids that no text becomes: special tokens, added tokens that the template
            writes or that look like marks, and the marks of the template that are one token.

    Raises:
        TokenizerError: the tokenizer is not a fast one, or cannot be taken apart.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast, template: Sequence[str] = ()) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise TokenizerError(
                f"{type(tokenizer).__name__} is not a fast tokenizer",
                hint="the model folder needs a tokenizer.json",
            )
        description = json.loads(backend.to_str())
        self._full = without_prefix_space(description)
        self._plain = without_prefix_space(description | {"added_tokens": []})
        # Content is normalised beforehand: what is cut apart is then what the model will read.
        self._normalizer = self._plain.normalizer
        self._plain.normalizer = None
        self._byte_level = "ByteLevel" in json.dumps(description["decoder"])
        self._stop_id: int | None = tokenizer.eos_token_id
        written = {token_id for segment in template for token_id in self.encode_template(segment)}
        self.control_ids = _control_ids(tokenizer, written) | _unknown_id(description["model"])
        self._text_marks: dict[str, bool] = {}
        for segment in template:
            self._read_marks(segment)

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
            texts = [self._normalise(text) for text in texts]
            encoded = self._plain.encode_batch_fast(texts, add_special_tokens=False)
        except (UnicodeEncodeError, TypeError) as error:
            raise TokenizerError(f"the text is not valid Unicode: {error}") from None
        return [
            list(encoding.ids)
            if self.control_ids.isdisjoint(encoding.ids)
            and "<0x" not in text
            and not any(mark in text for mark in self._text_marks)
            else self._encode_in_pieces(text)
            for text, encoding in zip(texts, encoded, strict=True)
        ]

    def encode_template(self, text: str) -> list[int]:
        """Tokenise what the chat template wrote itself: here control tokens are meant."""
        return list(self._full.encode(text, add_special_tokens=False).ids)

    def control_end(self, text: str) -> int:
        """Return where the last control token or mark ends in text of the template, or 0."""
        encoding = self._full.encode(text, add_special_tokens=False)
        ends = [
            end
            for token_id, (_, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if token_id in self.control_ids
        ]
        return max([0, *ends, *(match.end() for match in MARK.finditer(text))])

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of content ids; the inverse of `encode`."""
        return str(self._full.decode(list(ids), skip_special_tokens=False))

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of text for which one content token stands."""
        token = self._full.id_to_token(token_id)
        if token is None or token_id in self.control_ids:
            raise TokenizerError(f"the tokenizer has no content token {token_id}")
        if self._byte_level:
            table = _byte_level_table()
            # Added tokens are kept as they read, not in the alphabet of byte-level BPE.
            in_alphabet = all(char in table for char in token)
            return bytes(table[char] for char in token) if in_alphabet else token.encode()
        if _BYTE_LITERAL.fullmatch(token):
            return bytes([int(token[3:5], 16)])
        return str(token).replace("▁", " ").encode()

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Every content token by its exact bytes, for outlines_core."""
        from outlines_core import Vocabulary

        tokens: dict[bytes, list[int]] = {}
        for token_id in self._full.get_vocab().values():
            if token_id not in self.control_ids:
                tokens.setdefault(self.token_bytes(token_id), []).append(token_id)
        tokens.pop(b"", None)
        return Vocabulary(self.stop_id, tokens)

    def _normalise(self, text: str) -> str:
        """Return `text` as the tokenizer's normaliser leaves it, with every line in its place."""
        if self._normalizer is None:
            return text
        normalised = str(self._normalizer.normalize_str(text))
        if not same_lines(text, normalised):
            raise TokenizerError(
                "the tokenizer's normaliser moves, adds or drops a line break of this text",
                hint="write the text in plain characters, or use another model",
            )
        return normalised

    def _read_marks(self, segment: str) -> None:
        """Forbid the marks of the template that are no added tokens: by id, or by their text."""
        encoding = self._full.encode(segment, add_special_tokens=False)
        tokens = list(zip(encoding.ids, encoding.offsets, strict=True))
        for match in MARK.finditer(segment):
            first, last = match.span()
            over = [(i, start, end) for i, (start, end) in tokens if start < last and end > first]
            alone = self.encode_template(match[0])
            whole = {i for i, start, end in over if start <= first and last <= end}
            self.control_ids |= whole | ({*alone} if len(alone) == 1 else set())
            if self.control_ids.isdisjoint(i for i, _, _ in over):
                # Cut between all its characters, a mark differs if some token holds two of them.
                breakable = any(min(end, last) - max(start, first) > 1 for _, start, end in over)
                spelled = self._normalise(match[0])
                self._text_marks[spelled] = breakable and self._text_marks.get(spelled, True)

    def _encode_in_pieces(self, text: str) -> list[int]:
        """Tokenise normalised text that spells out a control token, by cutting it apart."""
        encoding = self._plain.encode(text, add_special_tokens=False)
        cuts = self._cuts_in_marks(text)
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
            cuts.add(start + 1)
        if not cuts:
            return list(encoding.ids)
        places = [0, *sorted(cuts), len(text)]
        pieces = [text[start:end] for start, end in pairwise(places)]
        return [token_id for piece in pieces for token_id in self._encode_in_pieces(piece)]

    def _cuts_in_marks(self, text: str) -> set[int]:
        """Return a cut between all characters of every mark of the template that `text` spells."""
        cuts: set[int] = set()
        for mark, breakable in self._text_marks.items():
            for match in re.finditer(re.escape(mark), text):
                if not breakable:
                    raise TokenizerError(
                        f"the text spells {mark!r}, which begins or ends a turn for this model, and"
                        " the tokenizer cannot spell it otherwise",
                        hint="take it out of the text, or use another model",
                    )
                cuts |= {*range(match.start() + 1, match.end())}
        return cuts


def same_lines(text: str, read: str) -> bool:
    """Return whether `read` has as many lines as `text`, and every quoted one is still quoted."""
    lines, found = text.splitlines(), read.splitlines()
    return len(lines) == len(found) and all(
        after.startswith(">") or not before.startswith(">")
        for before, after in zip(lines, found, strict=True)
    )


def _control_ids(tokenizer: PreTrainedTokenizerFast, written: set[int]) -> frozenset[int]:
    """Return the special and added tokens that are no content.

    Args:
        tokenizer: The model's tokenizer.
        written: The ids that the chat template writes itself.
    """
    control = set()
    added = tokenizer.added_tokens_decoder
    special = {*tokenizer.all_special_ids, *(i for i, token in added.items() if token.special)}
    for token_id in special | added.keys():
        text = str(tokenizer.convert_ids_to_tokens(token_id))
        if len(text) == 1:
            # Text needs its characters, and no template means a turn by one that is not special.
            forbidden = token_id in special & written
        elif token_id in special:
            forbidden = True
        else:
            forbidden = bool(MARK.fullmatch(text)) or (token_id in written and not _is_blank(text))
        if forbidden:
            control.add(token_id)
    return frozenset(control)


def _is_blank(text: str) -> bool:
    return text.replace("▁", " ").isspace()


def _unknown_id(model: dict[str, Any]) -> frozenset[int]:
    """Return the id that a model in a tokenizer.json gives to what it does not know, if any."""
    if model["type"] == "Unigram":
        return frozenset() if model["unk_id"] is None else frozenset([model["unk_id"]])
    unknown = model["vocab"].get(model.get("unk_token"))
    return frozenset() if unknown is None else frozenset([unknown])


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
