"""The explanation that a model writes before its verdict: one JSON string, whole even when cut."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from localjudge.engines.base import Draft

OPENING = '{"explanation": "'
_WORD = r'(?:[^\s"\\\x00-\x1f\x7f]|\\["\\])+'
# Words with single spaces between them, up to and with the mark that closes the string.
PATTERN = f'{_WORD}(?: {_WORD})*"'
# Texts that the pattern must allow, and others that it must not.
ALLOWED = ('No."', 'It says \\"no\\" twice."', 'C:\\\\ is right: the é and the 你 are there."')
NOT_ALLOWED = ('"', ' "', "a", 'a "', 'a  b"', 'a\nb"', 'a\\"', 'a\\nb"', 'a" "', 'a\u2028b"')


LONGEST_WORD = 40
"""Characters; what goes on for longer without a space is not in words between spaces."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """An explanation that the model wrote before its verdict.

    Attributes:
        written: The text as it stands in the JSON string. It is empty only where the budget ended
            before there was a character.
        cut: Whether the budget ended before the text did.
        tokens: Tokens that the model wrote.
    """

    written: str
    cut: bool
    tokens: int

    @classmethod
    def of(cls, draft: Draft) -> Explanation:
        """Take the explanation from what was written under `PATTERN`.

        A cut one ends at its last whole word. Where no space is near, as in Chinese, or if there
        is only a part of one word, it ends at its last whole character.

        Raises:
            ValueError: the draft is not what the pattern allows.
        """
        text, tokens = draft.text, len(draft.ids)
        if re.fullmatch(PATTERN, text):
            return cls(text.removesuffix('"'), False, tokens)
        whole, _, rest = text.rpartition(" ")
        if len(rest) > LONGEST_WORD:
            whole, rest = "", text
        # Half an escape at the end would escape the mark that closes the string.
        kept = whole or re.sub(r"(?<!\\)((?:\\\\)*)\\\Z", r"\1", rest)
        if draft.finish_reason != "length" or not re.fullmatch(PATTERN, f'{kept or "-"}"'):
            raise ValueError("the explanation is not one line of text in a JSON string")
        return cls(kept, True, tokens)

    @property
    def text(self) -> str:
        """The text as it is read."""
        text: str = json.loads(f'"{self.written}"')
        return text
