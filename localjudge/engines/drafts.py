"""Written token ids to a draft: the same for every engine."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from localjudge.engines.base import Draft
from localjudge.tokens import ContentTokenizer


def finished_draft(
    content: ContentTokenizer, ids: Sequence[int], stop_ids: Collection[int]
) -> Draft:
    """Return what was written before the first of `stop_ids`; without one, the budget ended first.

    The text is joined from the tokens' exact bytes; those of a character that the budget cut in
    two are left out.

    Raises:
        TokenizerError: among the ids is a control token.
    """
    end = next((place for place, token in enumerate(ids) if token in stop_ids), None)
    written = tuple(ids[:end])
    text = b"".join(map(content.token_bytes, written)).decode(errors="ignore")
    return Draft(text, written, "length" if end is None else "stop")
