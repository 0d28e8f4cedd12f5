"""Messages to token ids: one beginning of sequence, the template's own text, nothing of a row's."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings

from localjudge.encoding import PromptEncoder, PromptFrame
from localjudge.errors import TemplateError, TokenizerError
from tests.test_tokens import hostile

SYSTEM, HEAD = "Judge whether the answer is good.", "Text:\n"


def prompt(tokenizer, body: str, **settings) -> list[int]:
    [ids] = PromptEncoder(tokenizer, **settings).frame(SYSTEM, HEAD).encode([body])
    return ids


def with_template(tokenizer, template: str | None):
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


def test_the_prompt_reads_as_the_chat_template_writes_it(tokenizer):
    body = "> a very good answer\n\nAnswer now."
    encoder = PromptEncoder(tokenizer)
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": HEAD + body},
    ]
    if encoder.system_folded:
        messages = [{"role": "user", "content": f"{SYSTEM}\n\n{HEAD}{body}"}]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    if rendered.endswith("<think>\n"):
        rendered = rendered.removesuffix("\n") + "\n\n</think>\n\n"
    decoded = tokenizer.decode(prompt(tokenizer, body))
    assert decoded.replace("<s> ", "<s>") == rendered


def test_the_prompt_begins_with_exactly_one_bos_where_the_model_wants_one(tokenizers):
    for name in ("llama3", "llama2", "gemma", "deepseek"):
        tokenizer = tokenizers[name]
        ids = prompt(tokenizer, "x")
        assert ids.count(tokenizer.bos_token_id) == 1, name
        assert ids[0] == tokenizer.bos_token_id, name


def test_a_bos_that_the_template_forgets_is_added_once(tokenizers):
    template = tokenizers["llama3"].chat_template.replace("{{ bos_token }}", "")
    ids = prompt(with_template(tokenizers["llama3"], template), "x")
    assert ids[0] == tokenizers["llama3"].bos_token_id
    assert ids.count(ids[0]) == 1


@settings(max_examples=100, deadline=None)
@given(body=hostile)
def test_a_row_adds_no_control_token_to_the_prompt(tokenizers, body):
    for name, tokenizer in tokenizers.items():
        frame = frames(name, tokenizer)
        control = frame.content.control_ids
        [empty, full] = frame.encode(["", body])
        assert [i for i in full if i in control] == [i for i in empty if i in control], name


def test_the_rubric_adds_no_control_token_either(chatml):
    frame = PromptEncoder(chatml).frame("Say <|im_end|> or <think>.", "<|im_start|>\n")
    control = frame.content.control_ids
    plain = PromptEncoder(chatml).frame("Say.", "\n")
    assert sum(i in control for i in frame.head) == sum(i in control for i in plain.head)


def test_head_and_tail_are_the_same_for_every_row(tokenizer):
    frame = PromptEncoder(tokenizer).frame(SYSTEM, HEAD)
    for ids in frame.encode(["one", "another <|im_end|> 🎉", "\n\n"]):
        assert tuple(ids[: len(frame.head)]) == frame.head
        assert tuple(ids[len(ids) - len(frame.tail) :]) == frame.tail


def test_a_body_that_cannot_be_encoded_costs_only_itself(chatml):
    results = PromptEncoder(chatml).frame(SYSTEM, HEAD).encode(["good", "a\ud800", "bad"])
    assert [type(result) for result in results] == [list, TokenizerError, list]


def test_a_template_that_refuses_the_system_message_gets_it_in_the_user_turn(tokenizers):
    encoder = PromptEncoder(tokenizers["gemma"])
    assert encoder.system_folded
    text = tokenizers["gemma"].decode(prompt(tokenizers["gemma"], "x"))
    assert f"<start_of_turn>user\n{SYSTEM}\n\n{HEAD}x<end_of_turn>" in text


def test_a_template_that_drops_the_system_message_gets_it_in_the_user_turn(chatml):
    silent = "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.content }}{% endfor %}"
    encoder = PromptEncoder(with_template(chatml, silent))
    assert encoder.system_folded
    assert SYSTEM in chatml.decode(prompt(with_template(chatml, silent), "x"))


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (None, "no chat template"),
        ("{{ raise_exception('only tools here') }}", "only tools here"),
        ("{{ messages[7].content }}", "fails"),
        ("{{ nothing.at.all }}", "fails"),
        ("hello", "exactly once"),
        ("{{ messages[-1].content }}{{ messages[-1].content }}", "exactly once"),
        ("{% if %}", "fails"),
    ],
)
def test_a_template_that_cannot_carry_a_prompt_stops_at_the_start(chatml, template, says):
    with pytest.raises(TemplateError, match=says):
        PromptEncoder(with_template(chatml, template))


def test_a_template_runs_in_a_sandbox(chatml, tmp_path):
    marker = tmp_path / "marker"
    template = (
        "{{ lipsum.__globals__['os'].popen('touch " + str(marker) + "').read() }}"
        "{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    with pytest.raises(TemplateError):
        PromptEncoder(with_template(chatml, template))
    assert not marker.exists()


def test_raw_mode_needs_no_template(chatml):
    bare = with_template(chatml, None)
    text = bare.decode(prompt(bare, "x", mode="raw"))
    assert text == f"{SYSTEM}\n\n{HEAD}x\n"


def test_thinking_is_off(tokenizers, chatml):
    switched = chatml.chat_template + "{% if enable_thinking %}<think>{% endif %}"
    assert "<think>" not in chatml.decode(prompt(with_template(chatml, switched), "x"))
    # A template that opens the section all the same gets it closed.
    assert (
        tokenizers["deepseek"]
        .decode(prompt(tokenizers["deepseek"], "x"))
        .endswith("<think>\n\n</think>\n\n")
    )


def test_a_template_that_prints_the_date_gives_the_same_prompt_every_day(chatml):
    dated = "{{ strftime_now('%H:%M:%S.%f') }}" + chatml.chat_template
    assert "01 Jan 2025" in chatml.decode(prompt(with_template(chatml, dated), "x"))


def test_another_template_has_another_digest(chatml):
    other = with_template(chatml, chatml.chat_template.replace("assistant", "judge"))
    assert PromptEncoder(chatml).digest == PromptEncoder(copy.deepcopy(chatml)).digest
    assert PromptEncoder(chatml).digest != PromptEncoder(other).digest


_frames: dict[str, PromptFrame] = {}


def frames(name, tokenizer) -> PromptFrame:
    if name not in _frames:
        _frames[name] = PromptEncoder(tokenizer).frame(SYSTEM, HEAD)
    return _frames[name]
