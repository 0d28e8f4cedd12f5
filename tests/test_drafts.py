"""Written ids to text: exact, and cut where the text ends."""

from __future__ import annotations

from localjudge.engines.base import Failure
from localjudge.engines.drafts import finished_draft
from localjudge.tokens import ContentTokenizer


def test_what_follows_the_first_stop_token_is_dropped(tokenizer):
    content = ContentTokenizer(tokenizer)
    ids = content.encode("très bon 开心")
    for stops in ({content.stop_id}, {content.stop_id, 1}):
        draft = finished_draft(content, [*ids, content.stop_id, *ids], stops)
        assert draft.text == "très bon 开心"
        assert draft.ids == tuple(ids)
        assert draft.finish_reason == "stop"


def test_without_a_stop_token_the_budget_ended_first(tokenizer):
    content = ContentTokenizer(tokenizer)
    draft = finished_draft(content, content.encode("a cut text"), {content.stop_id})
    assert (draft.text, draft.finish_reason) == ("a cut text", "length")


def test_a_character_cut_in_two_is_left_out(chatml):
    content = ContentTokenizer(chatml)
    ids = content.encode("ok 🎉")
    assert finished_draft(content, ids[:-1], {content.stop_id}).text == "ok "


def test_a_control_token_is_no_text(chatml):
    content = ContentTokenizer(chatml)
    for token in (420, 99_999):
        failure = finished_draft(content, [5, token], {content.stop_id})
        assert isinstance(failure, Failure)
        assert str(token) in failure.error
