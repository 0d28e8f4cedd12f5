"""Texts cut to fit the model's context, where that was asked for: one part of a named input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from localjudge.templates import is_blank

Part = Literal["head", "tail", "middle"]

MARK = "[...]"
"""What stands in the text where something was cut out."""

_FIRST = 256  # characters that are tried first
_NEAR = 64  # characters; hardly a written character is made of more code points


def shortened(
    texts: Mapping[str, str], cuts: Mapping[str, Part], fits: Callable[[Mapping[str, str]], bool]
) -> Mapping[str, str] | None:
    """Cut as little as possible out of texts until they fit; None if no cut is enough.

    Of several inputs that may be cut, the longest are cut first, to one length. A cut that would
    leave only blanks of an input is no cut: there would be nothing to judge. The time it takes
    grows with what fits, not with what there is.

    Args:
        texts: The text of each input; together they are too long.
        cuts: Inputs that may be cut, and the part that is then cut out of each.
        fits: Whether a prompt with these texts is short enough.
    """
    parts = {name: part for name, part in cuts.items() if name in texts}
    longest = max((len(texts[name]) for name in parts), default=0)

    def keeping(kept: int) -> Mapping[str, str]:
        """Return the texts with at most about `kept` characters of each that may be cut."""
        return {**texts} | {name: without(part, texts[name], kept) for name, part in parts.items()}

    # More characters mean more tokens, or all but: a search by halves, its result tried. It begins
    # with few characters, for each try encodes what is kept.
    low, high = 0, min(_FIRST, longest)
    while high < longest and fits(keeping(high)):
        low, high = high, min(2 * high, longest)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(keeping(middle)) else (low, middle)
    cut = keeping(low)
    blank = any(cut[name] != texts[name] and is_blank(_left(cut[name])) for name in parts)
    return cut if low and not blank else None


def _left(cut: str) -> str:
    return cut.replace(MARK, "", 1)


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
