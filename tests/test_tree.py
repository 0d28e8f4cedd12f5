"""The tree of answers: every declared answer, by the model's own spelling, and nothing else."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from localjudge.answers import Labels, Scale
from localjudge.encoding import PromptEncoder
from localjudge.engines.scripted import byte_tokenizer
from localjudge.errors import MetricError, TokenizerError
from localjudge.tree import AnswerTree

HARD = {
    "begin alike": ["very_good", "very_bad", "poor"],
    "prefixes": ["good", "good_enough", "good_enough_indeed"],
    "one is in the other": ["correct", "incorrect"],
    "spaces": ["not toxic", "not", "toxic at all"],
    "special": ["n/a", 'say "no"', "C:\\tmp", "a|b", "5+", "(none)", "[x]", "{y}", "^$.*?", "a-b"],
    "not ASCII": ["开心", "难过", "普通", "très bon", "mauvais", "Überall"],
    "emoji": ["🎉", "🎊", "👍🏽", "👍"],
    "numbers as text": [str(number) for number in range(1, 11)],
    "control tokens": ["<|im_end|>", "</s>", "<think>", "<unk>", "fine"],
    "letters": ["A", "B"],
}


def frame_and_content(tokenizer):
    encoder = PromptEncoder(tokenizer)
    return encoder.frame("Judge whether the answer is good.", "Text:\n"), encoder.content


@pytest.mark.parametrize("labels", HARD.values(), ids=HARD)
def test_every_label_is_reached_by_a_path_of_its_own(tokenizer, labels):
    check_tree(tokenizer, Labels.of(labels))


@pytest.mark.parametrize("scale", [Scale(1, 5), Scale(1, 10), Scale(0, 100), Scale(-2, 2)])
def test_every_step_of_a_scale_is_reached_by_a_path_of_its_own(tokenizer, scale):
    check_tree(tokenizer, scale)


label = (
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=12)
    .map(str.strip)
    .filter(bool)
)


@settings(max_examples=60, deadline=None)
@given(labels=st.lists(label, min_size=2, max_size=12, unique_by=lambda text: text.casefold()))
def test_any_labels_of_plain_text_make_a_tree(tokenizers, labels):
    try:
        space = Labels.of(labels)
    except MetricError:
        reject()  # labels that cannot be told apart
    for name, tokenizer in tokenizers.items():
        # SentencePiece writes spaces as ▁ and cannot tell the two apart.
        if name not in ("chatml", "llama3") and "▁" in "".join(labels):
            continue
        try:
            check_tree(tokenizer, space)
        except TokenizerError:
            # Only a label that the tokenizer changes may be refused.
            normalize = tokenizer.backend_tokenizer.normalizer.normalize_str
            assert name == "nfkc"
            assert any(normalize(text) != text for text in space.documents)


def check_tree(tokenizer, space) -> None:
    frame, content = frame_and_content(tokenizer)
    tree = AnswerTree.build(content, space.documents, frame.context)
    prompt = tree.extend([*frame.head, *frame.tail])
    start = len(frame.head) + len(frame.tail) - len(content.encode(frame.context))
    reached = {}
    for branch in tree.branches:
        assert len(set(branch.tokens)) == len(branch.tokens) >= 2
        for token, members in zip(branch.tokens, branch.members, strict=True):
            read = content.decode([*prompt[start:], *branch.path, token]).rstrip("\ufffd")
            for answer in members:
                # What is read so far is the beginning of the answer, behind the template's tail.
                assert (frame.context + space.documents[answer]).startswith(read)
                reached.setdefault(answer, []).append(token)
    assert sorted(reached) == list(range(len(space.values)))


def test_answers_are_tokenised_as_they_continue_the_prompt(tokenizers):
    for name in ("llama2", "chatml"):
        tokenizer = tokenizers[name]
        frame, content = frame_and_content(tokenizer)
        tree = AnswerTree.build(content, Labels.of(["A", "B"]).documents, frame.context)
        ids = tree.extend([*frame.head, *frame.tail])
        joint = content.encode(frame.context + '{"output": "A"}')
        assert ids[len(ids) - len(joint[: joint.index(tree.branches[0].tokens[0])]) :] == [
            *joint[: joint.index(tree.branches[0].tokens[0])]
        ]


def test_a_token_across_the_end_of_the_prompt_replaces_what_it_covers(chatml):
    # Behind `{"output` the tokenizer goes on otherwise than behind `{"out`.
    _, content = frame_and_content(chatml)
    context = '{"'
    tree = AnswerTree.build(content, Labels.of(["A", "B"]).documents, context)
    before = content.encode(context)
    assert content.decode(tree.extend(before)).startswith(context + '{"output"')


def test_the_tree_of_one_text_is_what_always_follows_the_prompt(tokenizer):
    frame, content = frame_and_content(tokenizer)
    text = '{"explanation": "'
    tree = AnswerTree.build(content, [text], frame.context)
    assert (tree.size, tree.branches) == (1, ())
    prompt = [*frame.head, *frame.tail]
    kept = len(prompt) - len(content.encode(frame.context))
    assert tree.extend(prompt) == [*prompt[:kept], *content.encode(frame.context + text)]


def test_a_pattern_that_outlines_reads_otherwise_stops_before_any_row(chatml, monkeypatch):
    frame, content = frame_and_content(chatml)
    for pattern in (r'\{"output": "(good|bad|ugly)"\}', r'\{"output": "good"\}'):
        monkeypatch.setattr("localjudge.tree.pattern_of", lambda _, pattern=pattern: pattern)
        with pytest.raises(TokenizerError, match="does not read the answers as declared"):
            AnswerTree.build(content, Labels.of(["good", "bad"]).documents, frame.context)


def test_a_numeric_bound_never_reaches_the_grammar(chatml):
    # outlines_core drops minimum and maximum from a schema, so the scale is written out.
    assert re.fullmatch(Scale(1, 5).pattern, '{"output": 5}')
    for outside in (-3, 0, 6, 10, 4711):
        assert not re.fullmatch(Scale(1, 5).pattern, f'{{"output": {outside}}}')
    check_tree(chatml, Scale(1, 5))


def test_the_pattern_leaves_no_room_for_white_space():
    for space in (Scale(1, 5), Labels.of(["a", "b"])):
        for text in space.documents:
            assert not re.fullmatch(space.pattern, text.replace(": ", ":\n\n"))
            assert not re.fullmatch(space.pattern, text + "\n")


def test_a_tokenizer_that_spells_an_answer_otherwise_stops_before_any_row(chatml):
    frame, content = frame_and_content(chatml)

    class Garbled(type(content)):
        def token_bytes(self, token_id):
            return super().token_bytes(token_id).replace(b"o", b"0")

    garbled = Garbled(chatml)
    with pytest.raises(TokenizerError, match="does not spell"):
        AnswerTree.build(garbled, Labels.of(["good", "bad"]).documents, frame.context)


def test_an_answer_is_as_probable_as_all_its_deciding_tokens_together():
    frame, content = frame_and_content(byte_tokenizer())
    tree = AnswerTree.build(
        content, Labels.of(["unsupported", "unrelated", "supported"]).documents, frame.context
    )
    # The model likes "u" (it would say "unclear"), but neither of the two words that begin so.
    first, second = tree.branches
    assert (first.members, second.members) == (((0, 1), (2,)), ((0,), (1,)))
    choice = tree.choice([[math.log(0.8), math.log(0.15)], [math.log(0.05), math.log(0.02)]])
    assert max(range(3), key=choice.log_probs.__getitem__) == 2
    assert choice.mass == pytest.approx(0.8 * 0.05 + 0.8 * 0.02 + 0.15)
    assert choice.probabilities[2] == pytest.approx(0.15 / choice.mass)
    assert sum(choice.probabilities) == pytest.approx(1)
