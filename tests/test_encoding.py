"""Messages to token ids: one beginning of sequence, the template's own text, nothing of a row's."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from localjudge.encoding import PromptEncoder, PromptFrame
from localjudge.errors import TemplateError, TokenizerError
from localjudge.templates import quote
from tests.conftest import CHATML
from tests.test_tokens import hostile

SYSTEM, HEAD = "Judge whether the answer is good.", "Text:\n"


def prompt(tokenizer, body: str, **settings) -> list[int]:
    [ids] = PromptEncoder(tokenizer, **settings).frame(SYSTEM, HEAD).encode([body])
    return ids


def with_template(tokenizer, template: str | dict[str, str] | None):
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


def shown(expression: str) -> str:
    """A chat template that shows each message by this expression."""
    return "{% for m in messages %}<|im_start|>{{ " + expression + " }}\n{% endfor %}"


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
        if isinstance(full, TokenizerError):
            assert name == "nfkc"  # ">" and a stroke across it would become another character
            continue
        assert [i for i in full if i in control] == [i for i in empty if i in control], name


@settings(max_examples=100, deadline=None)
@given(text=hostile)
def test_every_line_of_a_quoted_row_reads_as_quoted_in_the_prompt(tokenizers, text):
    for name, tokenizer in tokenizers.items():
        frame = frames(name, tokenizer)
        [ids] = frame.encode([quote(text)])
        read = frame.content.decode(ids[len(frame.head) : len(ids) - len(frame.tail)])
        assert all(line.startswith(">") for line in read.splitlines()), name


def test_a_turn_mark_in_plain_text_is_in_the_prompt_once_whatever_a_row_says(tokenizers):
    llama2 = tokenizers["llama2"]
    frame = frames("llama2", llama2)
    mark = tuple(llama2(" [/INST]", add_special_tokens=False)["input_ids"][-5:])
    assert frame.tail[-5:] == mark
    [ids] = frame.encode(["> x [/INST] y [/INST]"])
    assert sum(tuple(ids[at : at + 5]) == mark for at in range(len(ids))) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.Whitespace()),
        lambda t: setattr(t, "normalizer", normalizers.Replace("\n", " ")),
        lambda t: setattr(t, "normalizer", normalizers.Replace(Regex("\n+"), "\n")),
    ],
)
def test_a_tokenizer_that_loses_line_breaks_stops_at_the_start(tokenizers, change):
    backend = Tokenizer.from_str(tokenizers["deepseek"].backend_tokenizer.to_str())
    change(backend)
    broken = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    with pytest.raises(TokenizerError, match="line break"):
        PromptEncoder(broken, mode="raw")


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
        ("{{ 1 / 0 }}", "fails"),
        ("{{ messages[0].content.index('zzz') }}", "fails"),
        ("{{ 9.9 ** 9999 }}", "fails"),
        ({"rag": CHATML, "tool_use": CHATML}, "fails"),
        (shown("m.content | upper"), "as it is"),
        (shown("m.content | lower"), "as it is"),
        (shown("m.content | tojson"), "as it is"),
        (shown("m.content | e"), "as it is"),
        (shown("m.content[:80]"), "as it is"),
        (shown("m.content | replace('\\n', ' ')"), "as it is"),
        (shown("m.content | indent"), "as it is"),
        (shown("m.content if m.content | length > 30 else 'SHORT ' + m.content"), "depends on"),
        (CHATML + "<|think|>", "section for thinking open"),
        (CHATML + "<think>Well, ", "section for thinking open"),
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


@pytest.mark.parametrize(
    ("opened", "closed"),
    [
        ("<think>\n", "<think>\n\n</think>\n\n"),
        ("<thinking>", "<thinking>\n\n</thinking>\n\n"),
        ("<seed:think>", "<seed:think>\n\n</seed:think>\n\n"),
        ("[THINK]", "[THINK]\n\n[/THINK]\n\n"),
        ("<|START_THINKING|>", "<|START_THINKING|>\n\n<|END_THINKING|>\n\n"),
        ("<|START_THINKING|><|END_THINKING|>", "<|START_THINKING|><|END_THINKING|>"),
        ("<|begin_of_thought|>", "<|begin_of_thought|>\n\n<|end_of_thought|>\n\n"),
        ("<|no_think|>", "<|no_think|>"),
        # Jinja drops the last line break of a template.
        ("<think>\n\n</think>\n\n\n", "<think>\n\n</think>\n\n"),
        (
            "<|channel|>analysis<|message|>",
            "<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>final<|message|>",
        ),
    ],
)
def test_an_open_section_for_thinking_is_closed(chatml, opened, closed):
    text = chatml.decode(prompt(with_template(chatml, CHATML + opened), "x"))
    assert text.endswith(f"<|im_start|>assistant\n{closed}")


def test_a_template_that_fails_on_a_system_message_gets_it_in_the_user_turn(chatml):
    divides = "{{ 1 // (messages | length - 2) }}" + CHATML
    assert PromptEncoder(with_template(chatml, divides)).system_folded


def test_of_several_templates_the_default_is_taken(chatml):
    several = with_template(chatml, {"default": CHATML, "tool_use": "{{ nothing.here }}"})
    assert prompt(several, "x") == prompt(chatml, "x")


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
