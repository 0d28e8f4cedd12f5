"""Patterns for constrained decoding, tried before any row: are they read as they are meant?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from localjudge.answers import Text
from localjudge.errors import TokenizerError

if TYPE_CHECKING:
    from outlines_core import Index


def check_pattern(pattern: str, allowed: Iterable[str], not_allowed: Iterable[str]) -> None:
    """Hold outlines_core's reading of `pattern` against texts of which it is known.

    It reads some patterns otherwise than the rest of the world, and says nothing: an optional part
    may be out of reach, or a bound dropped.

    Raises:
        TokenizerError: it does not allow one of `allowed`, or allows one of `not_allowed`.
    """
    from outlines_core import Index, Vocabulary

    index = Index(pattern, Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)}))
    for texts, meant in ((allowed, True), (not_allowed, False)):
        for text in texts:
            if _accepts(index, text) is not meant:
                does = "allows" if meant is False else "does not allow"
                raise TokenizerError(
                    f"outlines_core does not read the pattern as declared: it {does} {text!r}"
                )


def check_text(answers: Text) -> None:
    """Hold outlines_core's reading of a text's pattern against texts at its limits and beyond.

    Raises:
        TokenizerError: a text within the limits is not allowed, or one beyond them is.
    """
    least = len(answers.begins.split()) + 1
    full = [answers.share] * answers.max_sentences
    within = [[least], [answers.max_words], full]
    beyond = [[least - 1], [answers.max_words + 1], [*full[:-1], full[-1] + 1]]
    beyond.append([least] + [1] * answers.max_sentences)
    check_pattern(
        answers.pattern,
        [_sample(answers.begins, lengths) for lengths in within],
        [_sample(answers.begins, lengths) for lengths in beyond],
    )


def _sample(begins: str, lengths: list[int]) -> str:
    """Return what follows `begins` in a text whose sentences have so many words."""
    sentences = [["wörd"] * length for length in lengths]
    begun = begins.split()
    sentences[0][: len(begun)] = begun
    text = " ".join(f"{' '.join(words)}." for words in sentences)
    return text.removeprefix(begins) + '"'


def _accepts(index: Index, text: str) -> bool:
    state: int | None = index.get_initial_state()
    for byte in text.encode():
        state = None if state is None else index.get_next_state(state, byte)
    return state is not None and bool(index.is_final_state(state))
