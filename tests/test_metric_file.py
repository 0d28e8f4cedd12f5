import os
from pathlib import Path

import pytest

from localjudge.errors import MetricError
from localjudge.metric_file import read_metric_file

HEAD = """
name = "m"
kind = "{kind}"
[inputs]
text = "output"
[prompt]
user = "{{text}}"
"""
CLASSIFY = HEAD.format(kind="classify")
SCORE = HEAD.format(kind="score")
LABELS = '[answers.labels]\nyes = "It is."\nno = { score = 0, meaning = "It is not." }\n'


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "m.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(tmp_path: Path, text: str | bytes) -> MetricError:
    path = write(tmp_path, text)
    with pytest.raises(MetricError) as caught:
        read_metric_file(path).answer_space()
    return caught.value


def test_labels_may_be_a_meaning_or_a_table(tmp_path):
    space = read_metric_file(write(tmp_path, CLASSIFY + LABELS)).answer_space()
    assert space.values == ("yes", "no")
    assert space.scores == (None, 0.0)
    assert space.meanings == ("It is.", "It is not.")


@pytest.mark.parametrize("keys", [("-1", "0", "1"), ('"-1"', '"0"', '"1"')])
def test_scale_keys_may_be_bare_or_quoted_and_in_any_order(tmp_path, keys):
    low, middle, high = keys
    table = f'[answers.scale]\n{high} = "up"\n{low} = "down"\n{middle} = "level"\n'
    space = read_metric_file(write(tmp_path, SCORE + table)).answer_space()
    assert space.values == (-1, 0, 1)
    assert space.meanings == ("down", "level", "up")


def test_a_byte_order_mark_is_accepted(tmp_path):
    path = write(tmp_path, b"\xef\xbb\xbf" + (CLASSIFY + LABELS).encode())
    assert read_metric_file(path).name == "m"


@pytest.mark.parametrize(
    ("text", "field", "problem", "hint"),
    [
        ('nam = "m"', None, "unknown key 'nam'", "'name'"),
        (CLASSIFY + 'sytem = "x"\n' + LABELS, "prompt", "unknown key 'sytem'", "'system'"),
        (
            CLASSIFY + '[answers.labels]\nyes = { scor = 1 }\nno = ""',
            "answers.labels.yes",
            "unknown key 'scor'",
            "'score'",
        ),
        (
            CLASSIFY + LABELS + '[[examples]]\ninputs = {}\noutput = "no"\nreason = ""\n',
            "examples[0]",
            "unknown key 'reason'",
            "'reasoning'",
        ),
        (CLASSIFY, "answers", "missing", None),
        (SCORE.replace('name = "m"', "name = 5"), "name", "string, not 5", None),
        (CLASSIFY.replace('"classify"', '"rank"') + LABELS, "kind", "'score' or 'text'", None),
        ('direction = "up"\n' + CLASSIFY + LABELS, "direction", "'neutral', not 'up'", None),
        (CLASSIFY + 'steps = "one"\n' + LABELS, "prompt.steps", "list", None),
        (
            CLASSIFY + "[answers]\nlabels = [true, false]\n",
            "answers.labels",
            "table, label = meaning",
            '"true" = ',
        ),
        (
            CLASSIFY + "[answers.labels]\nyes = true\nno = false\n",
            "answers.labels.yes",
            "meaning, in quotes",
            None,
        ),
        (
            CLASSIFY + '[answers.labels]\nyes = { score = "1" }\nno = ""\n',
            "answers.labels.yes.score",
            "number, not '1'",
            None,
        ),
        (CLASSIFY + '[answers.labels]\n" " = "a"\nno = "b"\n', "answers.labels", "blank", None),
        (CLASSIFY + '[answers.scale]\n1 = "a"\n2 = "b"\n', "answers", "labels alone", None),
        (SCORE + LABELS, "answers", "scale alone, not labels", None),
        (SCORE + LABELS + '[answers.scale]\n1 = "a"\n2 = "b"\n', "answers", "scale alone", None),
        (SCORE + "[answers]\n", "answers", "not nothing", None),
        (SCORE + '[answers.scale]\n1 = "a"\n3 = "b"\n', "answers.scale", "for 2", None),
        (SCORE + '[answers.scale]\n1 = "a"\n01 = "b"\n', "answers.scale", "'01'", None),
        (SCORE + '[answers.scale]\n1 = "a"\n1000000000 = "b"\n', "answers.scale", "integer", None),
        (SCORE + '[answers.scale]\nlow = "a"\nhigh = "b"\n', "answers.scale", "'low'", None),
        (SCORE + '[answers.scale]\n1.5 = "a"\n', "answers.scale.1", "string", None),
    ],
)
def test_a_wrong_part_is_named_with_its_field(tmp_path, text, field, problem, hint):
    error = refusal(tmp_path, text)
    assert error.field == field
    assert problem in error.problem
    assert hint is None or hint in (error.hint or "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('name = "m"\nkind = "x\n', 2),
        ('name = "m"\nkind = "classify""\n', 2),
        ('name = "m"\n[prompt]\nuser = """a\n', 3),
        (CLASSIFY + '[answers.labels]\nyes = "a"\nyes = "b"\n', 10),
        (b'name = "m"\ndescription = "caf\xe9"\n', 2),
        ('name = "m"\n'.encode("utf-16"), 1),
    ],
    ids=["open", "lone quote", "open block", "label twice", "latin-1", "utf-16"],
)
def test_text_that_is_not_toml_is_named_with_its_line(tmp_path, text, line):
    error = refusal(tmp_path, text)
    assert error.line == line
    assert error.path == str(tmp_path / "m.toml")


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(MetricError, match="no such file") as missing:
        read_metric_file(tmp_path / "m.toml")
    with pytest.raises(MetricError, match="folder") as folder:
        read_metric_file(tmp_path)
    assert missing.value.hint and folder.value.hint


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    pipe = tmp_path / "metric.toml"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        with pytest.raises(MetricError, match="not a regular file") as caught:
            read_metric_file(path)
        assert caught.value.path == str(path)


def test_a_path_that_cannot_be_one_is_refused():
    for name in ("a\0.toml", "a" * 5000):
        with pytest.raises(MetricError, match="cannot be read"):
            read_metric_file(Path(name))
