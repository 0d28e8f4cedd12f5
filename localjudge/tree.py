"""The answers of a metric as a tree of tokens, checked before any row is judged.

Every allowed answer is one JSON document. All documents begin alike (`{"output": "`), and behind
that they part at one token or a few. Reading the model's probabilities at those places gives the
probability of every answer; what lies between the places is fixed and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localjudge.answers import pattern_of
from localjudge.engines.base import Choice
from localjudge.errors import TokenizerError

if TYPE_CHECKING:
    from outlines_core import Index

    from localjudge.tokens import ContentTokenizer


@dataclass(frozen=True, slots=True)
class Branch:
    """A place where answers part.

    Attributes:
        path: Token ids from the beginning of the tree to this place.
        tokens: The ids with which the answers go on, all different.
        members: For each of `tokens`, the indices of the answers that go that way.
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]
    members: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class AnswerTree:
    """Where the answers of one metric part, for one model. Build it with `build`.

    The tree of one text alone has no branches: it is what always follows the prompt.

    Attributes:
        size: Number of answers.
        dropped: How many ids at the end of a prompt the tree replaces: more than 0 only where the
            tokenizer joins the end of the prompt with the beginning of the answer.
        prefix: The ids with which every answer begins; they follow the prompt.
        branches: The places where answers part; the first is the root, with an empty path.
    """

    size: int
    dropped: int
    prefix: tuple[int, ...]
    branches: tuple[Branch, ...]

    @classmethod
    def build(cls, content: ContentTokenizer, documents: Sequence[str], context: str) -> AnswerTree:
        """Tokenise the answers as they continue a prompt, and check the result.

        Args:
            content: The model's tokenizer for content.
            documents: The text of each answer.
            context: Text at the end of the prompt that the answer continues without a control
                token between; see `PromptFrame.context`.

        Raises:
            TokenizerError: outlines_core reads other answers from their pattern than they are,
                or a path does not spell its answer.
        """
        before = content.encode(context) if context else []
        paths = content.encode_batch([context + text for text in documents])
        shared = _shared_length(paths)
        kept = _shared_length([before, paths[0][:shared]])
        tree = cls(
            size=len(paths),
            dropped=len(before) - kept,
            prefix=tuple(paths[0][kept:shared]),
            branches=tuple(_branches([path[shared:] for path in paths])) if len(paths) > 1 else (),
        )
        _check(content, documents, context, paths)
        return tree

    def extend(self, prompt: Sequence[int]) -> list[int]:
        """Append to a prompt what is the same in every answer."""
        return [*prompt[: len(prompt) - self.dropped], *self.prefix]

    def choice(self, log_probs: Sequence[Sequence[float]]) -> Choice:
        """Join what was read at the branches to one log-probability per answer.

        Args:
            log_probs: For each of `branches`, the natural log of the model's own probability of
                each of its `tokens`.
        """
        totals = [0.0] * self.size
        for branch, values in zip(self.branches, log_probs, strict=True):
            for members, value in zip(branch.members, values, strict=True):
                for answer in members:
                    totals[answer] += value
        return Choice(tuple(totals))


def _shared_length(paths: Sequence[list[int]]) -> int:
    """Return the length of the longest beginning that all paths share."""
    # The smallest and the largest of sorted sequences differ first where any two do.
    low, high = min(paths), max(paths)
    for index, (a, b) in enumerate(zip(low, high, strict=False)):
        if a != b:
            return index
    return min(len(low), len(high))


def _branches(paths: Sequence[list[int]]) -> Iterator[Branch]:
    """Yield the places where `paths` part, each before those behind it."""
    waiting: list[tuple[int, list[int]]] = [(0, list(range(len(paths))))]
    while waiting:
        start, members = waiting.pop(0)
        depth = start + _shared_length([paths[member][start:] for member in members])
        groups: dict[int, list[int]] = {}
        for member in members:
            groups.setdefault(paths[member][depth], []).append(member)
        yield Branch(
            path=tuple(paths[members[0]][:depth]),
            tokens=tuple(groups),
            members=tuple(tuple(group) for group in groups.values()),
        )
        waiting += [(depth, group) for group in groups.values() if len(group) > 1]


def _check(
    content: ContentTokenizer, documents: Sequence[str], context: str, paths: Sequence[list[int]]
) -> None:
    """Hold the paths against outlines_core's own reading of the pattern."""
    from outlines_core import Index, Vocabulary

    skipped = len(context.encode())
    spelled = [
        _drop_bytes([content.token_bytes(token) for token in path], skipped) for path in paths
    ]
    # Single bytes spell every string of the language; the answers' own tokens come beside them.
    ids = {bytes([byte]): byte for byte in range(256)}
    for pieces in spelled:
        for piece in pieces:
            ids.setdefault(piece, len(ids))
    vocabulary = Vocabulary(len(ids), {piece: [token] for piece, token in ids.items()})
    index = Index(pattern_of(documents), vocabulary)

    declared = {text.encode() for text in documents}
    accepted = set(_accepted(index))
    if accepted != declared:
        wrong = sorted(accepted ^ declared)[:3]
        raise TokenizerError(f"outlines_core does not read the answers as declared: {wrong}")
    for text, pieces in zip(documents, spelled, strict=True):
        state: int | None = index.get_initial_state()
        for piece in pieces:
            state = None if state is None else index.get_next_state(state, ids[piece])
        if b"".join(pieces) != text.encode() or state is None or not index.is_final_state(state):
            raise TokenizerError(
                f"the tokenizer does not spell the answer {text} as declared",
                hint="rename the label, or use another model",
            )


def _accepted(index: Index) -> Iterator[bytes]:
    """Yield every string that the index accepts, byte by byte; the language must be finite."""
    transitions, finals = index.get_transitions(), index.get_final_states()
    waiting = [(index.get_initial_state(), b"")]
    while waiting:
        state, text = waiting.pop()
        if state in finals:
            yield text
        waiting += [
            (following, text + bytes([byte]))
            for byte, following in transitions.get(state, {}).items()
            if byte < 256
        ]


def _drop_bytes(pieces: list[bytes], count: int) -> list[bytes]:
    """Drop the first `count` bytes of a text in pieces."""
    kept = []
    for piece in pieces:
        kept.append(piece[count:])
        count = max(0, count - len(piece))
    return [piece for piece in kept if piece]
