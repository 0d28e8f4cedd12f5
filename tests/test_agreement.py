"""A run against human labels, from files to figures and what is printed."""

import json

import pytest
from typer.testing import CliRunner

from localjudge.agreement import agree, write_agreements
from localjudge.cli import app
from localjudge.errors import ConfigError, DataError
from localjudge.records import Status, Verdict
from localjudge.store import RunStore


def label(row, value, chance=0.8, labels=("right", "wrong")):
    chances = {each: (1 - chance) / (len(labels) - 1) for each in labels} | {value: chance}
    return Verdict(
        row, "check", Status.OK, value=value, label=value, probabilities=chances, confidence=chance
    )


def grade(row, value, metric="grade"):
    chances = {str(step): 0.6 if step == value else 0.1 for step in range(1, 6)}
    expected = sum(int(step) * chance for step, chance in chances.items())
    return Verdict(
        row,
        metric,
        Status.OK,
        value=value,
        score=float(value),
        probabilities=chances,
        expected_score=expected,
    )


def failed(row, metric="check"):
    return Verdict(row, metric, Status.INVALID_OUTPUT, error="no JSON")


@pytest.fixture
def run(tmp_path):
    def run(*verdicts):
        metrics = {verdict.metric: "1" for verdict in verdicts}
        places = {row: place for place, row in enumerate(dict.fromkeys(v.id for v in verdicts))}
        with RunStore.open(tmp_path / "run", {"metrics": metrics}) as store:
            store.save([(places[verdict.id], verdict) for verdict in verdicts])
            store.finish()
        return tmp_path / "run"

    return run


@pytest.fixture
def people(tmp_path):
    def people(*rows):
        path = tmp_path / "human.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return people


def checks(run):
    """Twenty rows, the last two of which failed; the judge says right to all but rows 0 to 4."""
    verdicts = [label(str(place), "wrong" if place < 5 else "right") for place in range(18)]
    return run(*verdicts, failed("18"), failed("19"))


def right(number):
    return [{"id": place, "label": "right" if place > 2 else "wrong"} for place in range(number)]


def test_failures_are_counted_and_never_dropped(run, people):
    [found] = agree(checks(run), people(*right(20)))
    assert found.statuses == {"ok": 18, "invalid_output": 2}
    assert found.rows == 20
    assert found.figures["coverage"].value == 0.9
    assert found.figures["accuracy"].value == pytest.approx(16 / 18)
    assert found.figures["accuracy_failures_wrong"].value == pytest.approx(16 / 20)
    assert found.confusion == ((13, 2), (0, 3))
    assert found.by_label["wrong"]["precision"].value == pytest.approx(3 / 5)
    accuracy = found.figures["accuracy"]
    assert accuracy.low < accuracy.value < accuracy.high
    assert found.ceiling is None


def test_the_ids_of_both_sides_are_reported(run, people):
    rows = [*right(17), {"id": "x", "label": "right"}, {"id": 1, "label": "wrong"}]
    [found] = agree(checks(run), people(*rows, {"id": 17, "label": None}))
    ids = found.matches
    assert (ids.matched, ids.judge_only, ids.human_only) == (17, 3, 1)
    assert (ids.repeated, ids.unlabelled, ids.tied) == (1, 1, 0)


def test_ids_that_do_not_line_up_are_refused(run, people):
    path = people(*({"id": f"row-{place}", "label": "right"} for place in range(9)), *right(3))
    with pytest.raises(DataError, match="of 12 labelled ids, 3 are in the run") as caught:
        agree(checks(run), path)
    assert "in this file is 'row-0', in the run '0'" in caught.value.hint
    [found] = agree(checks(run), path, min_matched=0.2)
    assert found.matches.matched == 3


def test_order_and_labels_come_from_the_metric(run, people):
    folder = run(*(grade(str(place), 1 + place % 5) for place in range(10)))
    [found] = agree(folder, people(*({"id": p, "label": 2 + p % 3} for p in range(10))))
    assert found.labels == ("1", "2", "3", "4", "5")
    assert found.scale
    names = {"kappa_linear", "kappa_quadratic", "alpha_ordinal", "spearman", "expected_spearman"}
    assert names <= found.figures.keys()
    assert found.by_label["1"]["recall"].reason == "people never give this label"


def test_one_class_has_no_kappa_but_an_accuracy(run, people, tmp_path):
    folder = run(*(label(str(place), "right") for place in range(4)))
    found = agree(folder, people(*({"id": place, "label": "right"} for place in range(4))))
    assert found[0].figures["accuracy"].value == 1
    write_agreements(found, tmp_path / "out.json")
    figures = json.loads((tmp_path / "out.json").read_text())["check"]["figures"]
    assert figures["kappa"]["value"] is None
    assert figures["kappa"]["reason"].startswith("one class only")


def test_one_row_and_no_verdict_at_all_have_reasons(run, people):
    [found] = agree(run(label("0", "right"), failed("1")), people(*right(2)[1:]))
    assert found.figures["coverage"].value == 0
    assert found.figures["accuracy"].value is None
    assert found.figures["accuracy"].reason == found.figures["log_loss"].reason
    assert "no row has a verdict" in found.figures["kappa"].reason
    assert found.by_label["right"]["f1"].value is None


def test_one_matched_row_has_figures_without_intervals(run, people):
    [found] = agree(run(label("0", "right")), people({"id": 0, "label": "right"}))
    assert found.figures["accuracy"].value == 1
    assert found.figures["accuracy"].low is None
    assert "no spread" in found.figures["accuracy"].reason


def test_people_are_compared_among_themselves_and_with_the_judge(run, people):
    """Ann and Bob always agree, Cas never does; the judge says what Ann says."""
    verdicts, rows = [], []
    for place in range(12):
        first, second = ("right", "wrong") if place % 2 else ("wrong", "right")
        verdicts.append(label(str(place), first))
        said = {"Ann": first, "Bob": first, "Cas": second}
        rows += [{"id": place, "who": who, "label": each} for who, each in said.items()]
    [found] = agree(run(*verdicts), people(*rows), rater_column="who")
    assert found.figures["accuracy"].value == 1
    ceiling = found.ceiling
    assert ceiling.rows == 12
    # Without Cas the others agree; without Ann or Bob they are split, and there is no consensus.
    assert ceiling.raters.keys() == {"Cas"}
    assert ceiling.raters["Cas"]["others"]["accuracy"].value == 0
    assert ceiling.raters["Cas"]["judge"]["accuracy"].value == 0
    assert ceiling.raters["Cas"]["judge_against_others"]["accuracy"].value == 1
    assert ceiling.humans["accuracy"].value == 0
    assert ceiling.judge["accuracy"].value == 1
    assert ceiling.humans["alpha_among_raters"].value < 0


def test_split_raters_leave_a_row_out(run, people):
    rows = [*right(10), {"id": 4, "label": "wrong"}]
    [found] = agree(checks(run), people(*rows))
    assert (found.matches.tied, found.rows) == (1, 9)
    with pytest.raises(DataError, match="split evenly on every row"):
        agree(checks(run), people({"id": 1, "label": "right"}, {"id": 1, "label": "wrong"}))


def test_raters_of_a_scale_settle_on_the_mean(run, people):
    folder = run(*(grade(str(place), 1 + place % 5) for place in range(10)))
    rows = [{"id": place, "label": [1 + place % 5, min(5, 2 + place % 5)]} for place in range(10)]
    [found] = agree(folder, people(*rows))
    # 1.5 is rounded up to 2, and so on; both say 5 of the two best ones.
    assert found.figures["accuracy"].value == pytest.approx(2 / 10)
    assert found.ceiling.humans["kappa_quadratic"].value > 0.5


def test_rows_of_one_cluster_widen_the_interval(run, people):
    rows = [
        {"id": p, "label": "right" if p % 20 < 12 else "wrong", "doc": p % 20} for p in range(80)
    ]
    folder = run(*(label(str(place), "right") for place in range(80)))
    widths = []
    for column in (None, "doc"):
        [found] = agree(folder, people(*rows), cluster_column=column)
        figure = found.figures["accuracy"]
        widths.append(figure.high - figure.low)
    assert widths[1] > 1.5 * widths[0]


def test_a_run_of_several_metrics_needs_a_column_for_each(run, people):
    folder = run(label("0", "right"), grade("0", 4))
    path = people({"id": 0, "label": "right", "stars": 4})
    with pytest.raises(ConfigError, match="several metrics") as caught:
        agree(folder, path)
    assert "check, grade" in caught.value.hint
    found = agree(folder, path, label_column={"grade": "stars"})
    assert [each.metric for each in found] == ["grade"]
    with pytest.raises(ConfigError, match="no metric 'grades'"):
        agree(folder, path, label_column={"grades": "stars"})


def test_labels_are_mapped_and_a_stray_mapping_is_refused(run, people):
    path = people({"id": 0, "label": "Correct"})
    folder = run(label("0", "right"))
    with pytest.raises(DataError, match=r"'Correct' \(1\)"):
        agree(folder, path)
    [found] = agree(folder, path, map_labels={"Correct": "right"})
    assert found.figures["accuracy"].value == 1
    with pytest.raises(ConfigError, match="no label 'correct' in the file"):
        agree(folder, path, map_labels={"Correct": "right", "correct": "right"})


def test_without_probabilities_the_answers_are_those_of_the_shipped_metric(run, people):
    verdict = Verdict("0", "toxicity", Status.OK, value="toxic", label="toxic", score=1.0)
    [found] = agree(run(verdict), people({"id": 0, "label": "toxic"}))
    assert found.labels == ("toxic", "non-toxic")
    assert "no probabilities" in found.figures["brier_score"].reason


def test_answers_that_are_not_known_are_refused(run, people):
    verdict = Verdict("0", "own", Status.OK, value="a", label="a")
    with pytest.raises(ConfigError, match="does not say what the metric own may answer"):
        agree(run(verdict), people({"id": 0, "label": "a"}))


def test_texts_have_no_agreement(run, people):
    verdict = Verdict("0", "llm_summarization", Status.OK, value="The user asks.")
    with pytest.raises(ConfigError, match="answers with text"):
        agree(run(verdict), people({"id": 0, "label": "a"}))


def test_rows_with_lists_of_their_own_are_scored_but_not_ranked(run, people):
    folder = run(
        label("0", "cats", labels=("cats", "dogs")), label("1", "tea", labels=("tea", "dogs"))
    )
    [found] = agree(folder, people({"id": 0, "label": "cats"}, {"id": 1, "label": "dogs"}))
    assert found.labels == ("cats", "dogs", "tea")
    assert found.figures["accuracy"].value == 0.5
    assert found.figures["brier_score"].value == pytest.approx((0.04 + 0.64) / 2)
    assert found.figures["auroc"].reason == "each row has labels of its own"


def test_the_command_prints_a_table_and_writes_json(run, people, tmp_path):
    rows = [
        {"id": p, "label": ["right", "right" if p % 3 else "wrong", "right"]} for p in range(20)
    ]
    arguments = ["agree", checks(run), "--human", people(*rows), "--json", tmp_path / "out.json"]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    for text in ("20 matched", "invalid_output", "coverage", "0.900", "people \\ judge"):
        assert text in done.output
    assert "Against the consensus of a row's other raters" in done.output
    whole = json.loads((tmp_path / "out.json").read_text())["check"]
    assert whole["figures"]["coverage"]["value"] == 0.9
    assert whole["matches"]["matched"] == 20
    assert whole["ceiling"]["rows"] == 18


def test_lines_without_ids_are_not_taken_for_rows_that_have_some(run, people):
    lines = [{"label": "right"}] * 3
    given = run(*(label(row, "right") for row in ("3", "1", "2")))
    with pytest.raises(DataError, match="the file has no ids") as caught:
        agree(given, people(*lines))
    assert "--id-column" in caught.value.hint


def test_lines_without_ids_match_rows_without_ids(run, people):
    given = run(*(label(str(row), "right") for row in (1, 2, 3)))
    [found] = agree(given, people({"label": "right"}, {"label": "wrong"}))
    assert found.confusion == ((1, 0), (1, 0))
