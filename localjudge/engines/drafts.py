"""Written token ids to a draft, and whether what they were picked from were numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from localjudge.engines.base import Draft, Failure
from localjudge.errors import TokenizerError
from localjudge.tokens import ContentTokenizer

if TYPE_CHECKING:
    from torch import Tensor


def finished_draft(
    content: ContentTokenizer, ids: Sequence[int], stop_ids: Collection[int]
) -> Draft | Failure:
    """Return what was written before the first of `stop_ids`; without one, the budget ended first.

    The text is joined from the tokens' exact bytes; those of a character that the budget cut in
    two are left out. With a control token, or one that stands for no text, it is a failure.
    """
    end = next((place for place, token in enumerate(ids) if token in stop_ids), None)
    written = tuple(ids[:end])
    try:
        text = b"".join(map(content.token_bytes, written)).decode(errors="ignore")
    except TokenizerError as error:
        return Failure(f"the model wrote a token that is no text: {error}")
    return Draft(text, written, "length" if end is None else "stop")


class NanWatch:
    """A logits processor that changes nothing and keeps which rows were ever not a number."""

    def __init__(self) -> None:
        self._rows: list[Tensor] = []

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        """Note the rows, (rows,), of one step whose logits, (rows, vocabulary), hold NaN."""
        self._rows.append(logits.amax(dim=-1).isnan())
        return logits

    def broken(self) -> list[bool]:
        """Say of each row whether its logits held NaN at any step."""
        return [any(steps) for steps in zip(*(step.tolist() for step in self._rows), strict=True)]
