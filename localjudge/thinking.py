"""The section in which a model thinks before it answers, as its chat template writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from localjudge.errors import TemplateError

# How templates open a section for thinking.
_OPENING = re.compile(
    r"<(?!\|?(?:end|no)_)[\w:|]*(?:think|thought|reason)[\w|]*>|\[THINK\]", re.IGNORECASE
)
_HARMONY_OPENING = "<|channel|>analysis<|message|>"
_HARMONY_CLOSING = "<|end|><|start|>assistant<|channel|>final<|message|>"
_USUAL_GAP = "\n\n"  # between the section and the answer


@dataclass(frozen=True, slots=True)
class Section:
    """What a template writes around a model's thoughts, and before its answer.

    Attributes:
        opening: What the template writes behind the messages, up to where the model thinks.
        before: White space between the thoughts and the mark that closes the section.
        closing: That mark, and what follows it.
    """

    opening: str
    before: str
    closing: str

    @classmethod
    def find(cls, thinking: str, answering: str) -> Section | None:
        """Find the section in what a template writes behind the messages.

        Some templates open it, others leave that to the model; those show it in the empty section
        that they write where the model is not to think.

        Args:
            thinking: What the template writes with thinking switched on.
            answering: What it writes with thinking switched off.

        Returns:
            The section, or None if the template shows none.
        """
        if thinking.rstrip().endswith(_HARMONY_OPENING):
            return cls(thinking.rstrip(), "", _HARMONY_CLOSING)
        mark = _last_mark(thinking)
        if mark is not None:
            mark_closing, rest = _closing_of(mark[0]), thinking[mark.end() :]
            if mark_closing is None or rest.strip():
                return None
            _, closed, gap = answering.partition(mark_closing)
            before = "\n" if "\n" in rest else ""
            return cls(thinking, before, mark_closing + (gap if closed else _USUAL_GAP))
        added = answering.removeprefix(thinking)
        mark = _last_mark(added)
        mark_closing = None if mark is None else _closing_of(mark[0])
        if added == answering or mark is None or mark_closing is None:
            return None
        between, closed, gap = added[mark.end() :].partition(mark_closing)
        if not closed or between.strip():
            return None
        before = "\n" if "\n" in between else ""
        return cls(thinking + added[: mark.end()] + before, before, mark_closing + gap)


def close_section(tail: str) -> str:
    """Close a section that a template leaves open although thinking is switched off.

    Args:
        tail: What the template writes behind the messages.

    Raises:
        TemplateError: it opens a section that cannot be closed.
    """
    if tail.rstrip().endswith(_HARMONY_OPENING):
        return tail.rstrip() + _HARMONY_CLOSING
    mark = _last_mark(tail)
    if mark is None:
        return tail
    closing, rest = _closing_of(mark[0]), tail[mark.end() :]
    if closing is not None and closing in rest:
        return tail
    if closing is None or rest.strip():
        raise TemplateError(
            f"the model's chat template leaves a section for thinking open, by {mark[0]}",
            hint="use prompt mode `raw`, or a model with an ordinary chat template",
        )
    return f"{tail.rstrip()}\n\n{closing}{_USUAL_GAP}"


def _last_mark(text: str) -> re.Match[str] | None:
    marks = list(_OPENING.finditer(text))
    return marks[-1] if marks else None


def _closing_of(mark: str) -> str | None:
    """Return the mark that closes what `mark` opens, or None if there is none."""
    if "|" in mark:
        closing = mark.replace("START", "END").replace("begin", "end")
        return None if closing == mark else closing
    return f"{mark[0]}/{mark[1:]}"
