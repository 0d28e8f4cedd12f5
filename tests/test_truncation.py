"""Texts cut to fit: only what was named, as little as needed, and said so."""

from __future__ import annotations

import json

import pytest
import regex
from hypothesis import assume, given
from hypothesis import strategies as st

from localjudge.engines.scripted import ScriptedEngine
from localjudge.errors import ConfigError
from localjudge.judge import Judge
from localjudge.metrics import classifier
from localjudge.records import Row, Status
from localjudge.run import run_file
from localjudge.truncation import MARK, shortened, without

SUPPORT = classifier(
    "support",
    {"yes": "supported", "no": "not supported"},
    inputs=["question", "context"],
    user="Question:\n{question}\nContext:\n{context}",
)
PAIR = "pairwise"


@pytest.mark.parametrize(
    ("part", "left"),
    [("tail", f"abcd{MARK}"), ("head", f"{MARK}ghij"), ("middle", f"ab{MARK}ij")],
)
def test_the_named_part_is_cut_out(part, left):
    assert without(part, "abcdefghij", 4) == left
    assert without(part, "abcdefghij", 10) == "abcdefghij"


@given(
    st.text(st.sampled_from("ab \n\u0301\u200d👩👍🏽🇩🇪한각"), max_size=40),
    st.sampled_from(["head", "tail", "middle"]),
    st.integers(0, 40),
)
def test_no_character_is_split_and_nothing_is_added_or_moved(text, part, kept):
    cut = without(part, text, kept)
    if kept >= len(text):
        assert cut == text
        return
    first, found, last = cut.partition(MARK)
    assert found
    assert text.startswith(first)
    assert text.endswith(last)
    assert len(first) + len(last) <= kept
    whole = regex.findall(r"\X", text)
    ends = {sum(map(len, whole[:count])) for count in range(len(whole) + 1)}
    assert {len(first), len(text) - len(last)} <= ends


@given(st.lists(st.integers(1, 300), min_size=1, max_size=3), st.integers(1, 400))
def test_no_more_is_cut_than_is_needed(lengths, limit):
    texts = {str(place): "x" * length for place, length in enumerate(lengths)}
    cuts = dict.fromkeys(texts, "tail")

    def fits(texts):
        return sum(len(text.removesuffix(MARK)) for text in texts.values()) <= limit

    assume(not fits(texts))
    cut = shortened(texts, cuts, fits)
    if cut is None:  # not even one character of each
        assert limit < len(lengths)
        return
    assert fits(cut)
    # With each character of one, each of the others may grow by one too.
    kept = sum(len(text.removesuffix(MARK)) for text in cut.values())
    assert limit - len(lengths) < kept <= limit


def judged(rows, metric=SUPPORT, *, context_length=2000, **options):
    seen = []
    engine = ScriptedEngine(
        choose=lambda prompt, size: seen.append(prompt) or [1 / size] * size,
        context_length=context_length,
    )
    with Judge(engine, **options) as judge:
        return list(judge.run(metric, rows)), seen


LONG = "The first words. " + "Then more of them. " * 200 + "The last words."


def test_without_the_option_a_row_that_is_too_long_is_refused():
    [verdict], seen = judged([{"question": "Is it?", "context": LONG}])
    assert (verdict.status, verdict.metadata, seen) == (Status.INPUT_TOO_LONG, {}, [])


@pytest.mark.parametrize("part", ["head", "tail", "middle"])
def test_only_the_named_input_is_cut_and_the_row_says_so(part):
    rows = [{"question": "Is it?", "context": LONG}, {"question": "Is it?", "context": "Short."}]
    (cut, whole), seen = judged(rows, truncate={"context": part})
    assert (cut.status, whole.status) == (Status.OK, Status.OK)
    assert cut.metadata["input_truncated"] is True
    assert whole.metadata == {}
    [prompt] = [text for text in seen if MARK in text]
    assert ("The first words." in prompt) == (part != "head")
    assert ("The last words." in prompt) == (part != "tail")
    # Rubric, question and the closing instruction are whole.
    assert "> Is it?" in prompt
    [other] = [text for text in seen if text != prompt]
    assert prompt.count('{"output": "yes"}') == other.count('{"output": "yes"}')
    [refused], _ = judged(rows[:1])
    tokens = int(refused.error.split()[0])
    assert cut.metadata["tokens_left_out"] == tokens - cut.prompt_tokens
    assert cut.prompt_tokens > 1900  # it fills what there is


def test_what_does_not_fit_even_so_is_refused_whole():
    [verdict], seen = judged([{"question": LONG, "context": LONG}], truncate={"context": "tail"})
    assert (verdict.status, seen) == (Status.INPUT_TOO_LONG, [])


def test_equal_prompts_are_still_asked_once_and_pairs_are_cut_alike():
    from localjudge.library import find_metric

    metric = find_metric(PAIR)
    [first, second] = metric.pair.inputs
    row = {column: "Short." for column in metric.columns().values()}
    row |= {metric.columns()[first]: LONG, metric.columns()[second]: "Really. " + LONG}
    (one, two), seen = judged(
        [row, row], metric, context_length=8000, truncate={first: "tail", second: "tail"}
    )
    assert (one.status, two.status) == (Status.OK, Status.OK)
    assert len(seen) == 2  # both orders, once
    shown = [{line for line in prompt.splitlines() if MARK in line} for prompt in seen]
    assert shown[0] == shown[1]
    assert len(shown[0]) == 2


@pytest.mark.parametrize(
    ("truncate", "says"), [({"context": "end"}, "truncate"), ({"contxt": "tail"}, "contxt")]
)
def test_an_unknown_part_or_input_is_refused_before_the_model_is_loaded(
    tmp_path, toy, truncate, says
):
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({"question": "a", "context": "b"}) + "\n")
    with pytest.raises(ConfigError, match=says):
        run_file(
            [SUPPORT],
            data,
            model=toy,
            out=tmp_path / "run",
            options={"truncate": truncate},
            open_judge=lambda *_, **__: pytest.fail("the model was loaded"),
        )


def test_the_summary_counts_them(tmp_path, toy):
    data = tmp_path / "rows.jsonl"
    rows = [{"question": "a", "context": text} for text in (LONG, "Short.", LONG + "!")]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def open_judge(*_, engine, settings, **options):
        return Judge(ScriptedEngine(context_length=2000), **options)

    result = run_file(
        [SUPPORT],
        data,
        model=toy,
        out=tmp_path / "run",
        options={"truncate": {"context": "middle"}},
        open_judge=open_judge,
    )
    assert (result.failed, result.tallies[0].shortened) == (0, 2)
    settings = json.loads((tmp_path / "run" / "run.json").read_text())
    assert settings["options"]["truncate"] == {"context": "middle"}


def test_a_row_of_a_task_is_asked_with_its_own_texts_unless_cut():
    with Judge(ScriptedEngine(context_length=2000), truncate={"context": "tail"}) as judge:
        task = judge.prepare(SUPPORT)
        asked = judge.ask(task, [Row("1", {"question": "a", "context": "Short."})])
    [question] = asked.asked[0]
    assert MARK not in question.body


def test_rows_that_are_cut_to_the_same_text_keep_their_own_facts():
    rows = [{"question": "Is it?", "context": "word " * count} for count in (4000, 900)]
    rows.append({"question": "Is it?", "context": without("tail", rows[0]["context"], 10)})
    verdicts, _ = judged(rows, truncate={"context": "tail"})
    alone = [judged([row], truncate={"context": "tail"})[0][0] for row in rows]
    assert [verdict.metadata for verdict in verdicts] == [each.metadata for each in alone]
    lost = [verdict.metadata.get("tokens_left_out", 0) for verdict in verdicts]
    assert lost[0] - lost[1] == 5 * 3100
    # A row that is as short as another was cut to has not been cut itself.
    with Judge(ScriptedEngine(context_length=2000), truncate={"context": "tail"}) as judge:
        task = judge.prepare(SUPPORT)
        [cut] = judge.ask(task, [Row("1", rows[0])]).asked[0]
        text = "".join(line[2:] for line in cut.body.splitlines() if line.endswith(MARK))
    both, _ = judged(
        [rows[0], {"question": "Is it?", "context": text}], truncate={"context": "tail"}
    )
    assert "input_truncated" in both[0].metadata
    assert both[1].metadata == {}


@pytest.mark.parametrize("blank", [" ", "\n", "\t \u3000", "\u200b", "\0"])
@pytest.mark.parametrize("part", ["head", "tail", "middle"])
def test_a_cut_that_leaves_only_blanks_is_refused_and_not_judged(part, blank):
    padding = blank * 40_000
    text = {"head": "word " + padding, "tail": padding + " word"}.get(
        part, padding + " word " + padding
    )
    [verdict], seen = judged([{"question": "Is it?", "context": text}], truncate={"context": part})
    assert (verdict.status, seen) == (Status.INPUT_TOO_LONG, [])
    assert "the limit is" in verdict.error


def test_a_short_input_stays_whole_beside_a_long_one():
    cuts = {"question": "tail", "context": "tail"}
    [verdict], [prompt] = judged([{"question": "Is it?", "context": LONG * 3}], truncate=cuts)
    assert verdict.status is Status.OK
    assert "> Is it?" in prompt


@given(
    st.text(st.sampled_from("ab \n"), max_size=60),
    st.text(st.sampled_from("ab \n"), max_size=60),
    st.integers(0, 60),
    st.sampled_from(["head", "tail", "middle"]),
)
def test_what_is_left_of_a_cut_input_can_be_read(one, two, limit, part):
    texts = {"one": one, "two": two}

    def fits(texts):
        return sum(len(text.replace(MARK, "")) for text in texts.values()) <= limit

    assume(not fits(texts))
    cut = shortened(texts, dict.fromkeys(texts, part), fits)
    for name, text in (cut or {}).items():
        assert text == texts[name] or text.replace(MARK, "").strip()


def test_what_is_tried_grows_with_what_fits_and_not_with_the_text():
    tried = []
    text = "x" * 2_000_000

    def fits(texts):
        tried.append(len(texts["a"]))
        return len(texts["a"]) <= 1000

    cut = shortened({"a": text}, {"a": "tail"}, fits)
    assert cut is not None
    assert len(cut["a"]) == 1000
    assert sum(tried) < 20_000
