from pathlib import Path
from typing import get_args

import pytest

from localjudge.answers import Kind
from localjudge.errors import ConfigError, MetricError
from localjudge.library import find_metric, find_metrics, shipped, write_starter
from localjudge.metrics import load_metric


def test_a_metric_is_found_by_path(tmp_path, monkeypatch):
    text = shipped()["toxicity"].read_text()
    (tmp_path / "mine.toml").write_text(text.replace('"toxicity"', '"mine"'))
    (tmp_path / "plain").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert find_metric("mine.toml").name == "mine"
    assert find_metric(Path("mine.toml")).name == "mine"
    assert find_metric("./plain").path == Path("plain")


def test_an_unknown_name_brings_up_the_near_one():
    with pytest.raises(MetricError) as caught:
        find_metric("toxcity")
    assert "did you mean 'toxicity'?" in str(caught.value)
    assert "localjudge metrics" in str(caught.value)


def test_an_installed_package_finds_the_metrics_inside_itself(tmp_path, monkeypatch):
    (tmp_path / "localjudge" / "prompts").mkdir(parents=True)
    (tmp_path / "localjudge" / "prompts" / "a.toml").touch()
    monkeypatch.setattr("localjudge.library.__file__", str(tmp_path / "localjudge" / "library.py"))
    assert list(shipped()) == ["a"]


def labels(tmp_path, name="tone.toml"):
    path = tmp_path / name
    path.write_text('[labels]\nformal = "For an authority."\ncasual = "For a friend."\n')
    return path


def test_labels_and_a_template_are_one_more_metric(tmp_path):
    path = labels(tmp_path)
    assert [m.name for m in find_metrics([], labels=path, text="{answer}")] == ["tone"]
    found = find_metrics(["topic", "toxicity"], labels=path, text="{answer}")
    assert [metric.name for metric in found] == ["topic", "toxicity", "tone"]
    assert found[0] == find_metric("topic")


def test_labels_alone_go_to_the_metrics_that_take_them(tmp_path):
    topic, toxicity = find_metrics(["topic", "toxicity"], labels=labels(tmp_path))
    assert topic.answers.values == ("formal", "casual", "other")
    assert toxicity == find_metric("toxicity")


@pytest.mark.parametrize(
    ("names", "given", "error", "says"),
    [
        ([], {}, ConfigError, "no metric"),
        ([], {"labels"}, ConfigError, "no metric"),
        (["toxicity"], {"text"}, ConfigError, "--labels"),
        (["toxicity"], {"labels"}, MetricError, "answers of its own"),
        (["topik"], {"labels"}, MetricError, "'topic'"),
    ],
)
def test_a_run_without_a_metric_or_with_labels_for_none_is_refused(
    tmp_path, names, given, error, says
):
    options = {"labels": labels(tmp_path), "text": "{answer}"}
    with pytest.raises(error) as caught:
        find_metrics(names, **{key: options[key] for key in given})
    assert says in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_starting_file_is_a_valid_metric_with_comments(tmp_path, kind):
    path = tmp_path / "mine.toml"
    write_starter("mine", kind, path)
    metric = load_metric(path)
    assert (metric.name, metric.kind) == ("mine", kind)
    assert len(metric.examples) >= 2 and all(e.reasoning for e in metric.examples)
    text = path.read_text(encoding="utf-8")
    assert text.count("#") > 10
    assert "NAME" not in text and "FILE" not in text


def test_a_starting_file_replaces_nothing(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("years of work")
    with pytest.raises(ConfigError, match="already"):
        write_starter("mine", "score", path)
    assert path.read_text() == "years of work"


@pytest.mark.parametrize(
    ("name", "path", "error"),
    [
        ("a b", "x.toml", MetricError),
        ('a"', "x.toml", MetricError),
        ("a", "no/x.toml", ConfigError),
    ],
)
def test_a_starting_file_that_cannot_be_is_not_written(tmp_path, name, path, error):
    with pytest.raises(error):
        write_starter(name, "text", tmp_path / path)
    assert list(tmp_path.iterdir()) == []
