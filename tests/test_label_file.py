from pathlib import Path

import pytest

from localjudge.answers import Labels, Scale
from localjudge.errors import ConfigError, MetricError
from localjudge.label_file import build_metric, give_labels
from localjudge.labels import Label
from localjudge.library import find_metric

LABELS = (
    '[labels]\nformal = "For an authority."\ncasual = { meaning = "For a friend.", score = 1 }\n'
)


def write(tmp_path: Path, text: str, name: str = "tone.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_labels_and_a_template_make_a_metric(tmp_path):
    path = write(tmp_path, 'definition = "How formal is it?"\ndirection = "minimize"\n' + LABELS)
    metric = build_metric(path, "Question: {question} Answer: {answer} and {question}")
    assert metric.name == "tone"
    assert metric.inputs == {"question": "question", "answer": "answer"}
    assert metric.answers == Labels(
        (Label("formal", "For an authority."), Label("casual", "For a friend.", 1.0))
    )
    assert (metric.definition, metric.direction) == ("How formal is it?", "minimize")


def test_a_scale_makes_a_metric_and_the_file_may_name_it(tmp_path):
    path = write(tmp_path, 'name = "ease"\n[scale]\n1 = "hard"\n2 = "so-so"\n3 = "easy"\n')
    metric = build_metric(path, "{answer}")
    assert metric.name == "ease"
    assert metric.answers == Scale(1, 3, ((1, "hard"), (2, "so-so"), (3, "easy")))


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("", "labels", "neither labels nor a scale"),
        (LABELS + '[scale]\n1 = "a"\n2 = "b"\n', "labels", "both labels and a scale"),
        ('[labels]\na = "x"\n', "labels", "1 label"),
        ('[labels]\na = "x"\nA = "y"\n', "labels.A", "differ only in case"),
        ('[labels]\na = 1\nb = "y"\n', "labels.a", "meaning, in quotes"),
        ('labels = ["a", "b"]\n', "labels", "table"),
        ('[scale]\n1 = "a"\n3 = "b"\n', "scale", "for 2"),
        ('[label]\na = "x"\n', None, "unknown key 'label'"),
        ('name = "a b"\n' + LABELS, "name", "'a b'"),
        ('direction = "up"\n' + LABELS, "direction", "'up'"),
    ],
)
def test_what_is_wrong_in_a_label_file_is_named_with_its_place(tmp_path, text, field, says):
    path = write(tmp_path, text)
    with pytest.raises(MetricError) as caught:
        build_metric(path, "{answer}")
    assert (caught.value.path, caught.value.field) == (str(path), field)
    assert says in caught.value.problem


def test_a_file_whose_name_is_no_name_of_a_metric_is_told_so(tmp_path):
    path = write(tmp_path, LABELS, "my labels.toml")
    with pytest.raises(MetricError) as caught:
        build_metric(path, "{answer}")
    assert caught.value.field == "name"


def test_a_template_without_a_placeholder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no \{column\}") as caught:
        build_metric(write(tmp_path, LABELS), "Judge this. {{answer}} {0}")
    assert "{question}" in caught.value.hint


def test_a_metric_that_takes_labels_gets_them(tmp_path):
    path = write(tmp_path, '[labels]\npets = "Animals at home."\ngarden = ""\n')
    metric = give_labels(find_metric("topic"), path)
    assert metric.name == "topic"
    assert metric.answers.values == ("pets", "garden", "other")
    assert metric.answers.meanings[0] == "Animals at home."


def test_a_metric_with_answers_of_its_own_takes_none(tmp_path):
    path = write(tmp_path, 'definition = "x"\n' + LABELS)
    with pytest.raises(MetricError, match="toxicity has answers of its own") as caught:
        give_labels(find_metric("toxicity"), path)
    assert "--text" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('definition = "x"\n' + LABELS, "definition"),
        ('[scale]\n1 = "a"\n2 = "b"\n', "scale"),
    ],
)
def test_nothing_in_a_file_of_topics_is_silently_left_aside(tmp_path, text, field):
    path = write(tmp_path, text)
    with pytest.raises(MetricError, match="labels alone") as caught:
        give_labels(find_metric("topic"), path)
    assert (caught.value.path, caught.value.field) == (str(path), field)


@pytest.mark.parametrize("odd", ["{body text}", "{Kanal }", "{ body}", "{1st}", "{body-text}"])
def test_a_column_that_no_placeholder_can_name_is_not_printed_as_text(tmp_path, odd):
    (tmp_path / "tone.toml").write_text('[labels]\na = ""\nb = ""\n')
    with pytest.raises(ConfigError, match="is no placeholder") as caught:
        build_metric(tmp_path / "tone.toml", f"Subject: {{subject}} Body: {odd}")
    assert "--map" in caught.value.hint
    build_metric(tmp_path / "tone.toml", 'Subject: {subject} JSON: {"a": 1} {} {{subject}}')
