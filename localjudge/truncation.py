"""Texts cut to fit the model's context, where that was asked for: one part of a named input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

Part = Literal["head", "tail", "middle"]

MARK = "[...]"
"""What stands in the text where something was cut out."""

_NEAR = 64  # characters; hardly a written character is made of more code points


def shortened(
    texts: Mapping[str, str], cuts: Mapping[str, Part], fits: Callable[[Mapping[str, str]], bool]
) -> Mapping[str, str] | None:
    """Cut as little as possible out of texts until they fit; None if no cut is enough.

    Of several inputs that may be cut, each keeps the same share of its characters.

    Args:
        texts: The text of each input; together they are too long.
        cuts: Inputs that may be cut, and the part that is then cut out of each.
        fits: Whether a prompt with these texts is short enough.
    """
    parts = {name: part for name, part in cuts.items() if name in texts}
    longest = max((len(texts[name]) for name in parts), default=0)

    def keeping(kept: int) -> Mapping[str, str]:
        """Return the texts so that of the longest about `kept` characters are left."""
        return {**texts} | {
            name: without(part, texts[name], len(texts[name]) * kept // longest)
            for name, part in parts.items()
        }

    # More characters mean more tokens, or all but: a search by halves, its result tried.
    low, high = 0, longest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(keeping(middle)) else (low, middle)
    return keeping(low) if low else None


def without(part: Part, text: str, kept: int) -> str:
    """Cut `part` out of a text, so that at most `kept` characters and the mark are left.

    What a reader sees as one character, such as a letter with its accents, is not split.
    """
    if kept >= len(text):
        return text
    first = {"tail": kept, "head": 0, "middle": kept - kept // 2}[part]
    last = kept - first
    start = _boundary(text, first, before=True)
    end = _boundary(text, len(text) - last, before=False)
    return f"{text[:start]}{MARK}{text[end:]}"


def _boundary(text: str, place: int, *, before: bool) -> int:
    """Return the next place where a character ends, at or before `place`, or at or behind it."""
    import regex

    start = max(0, place - _NEAR)
    near = text[start : place + _NEAR]
    ends: list[int] = [start, *(start + found.end() for found in regex.finditer(r"\X", near))]
    if before:
        return max(end for end in ends if end <= place)
    return min((end for end in ends if end >= place), default=len(text))
