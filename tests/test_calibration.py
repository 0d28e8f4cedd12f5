"""Calibration: what it gains, what it refuses, and what its file may say."""

import json
import math
import os

import numpy as np
import pytest
from typer.testing import CliRunner

from localjudge.agreement import agree
from localjudge.calibrated_runs import apply_calibration, calibrate_run
from localjudge.calibration import calibrate, cross_calibrated, kinds
from localjudge.calibration_file import Calibration
from localjudge.cli import app
from localjudge.compared import compare
from localjudge.errors import DataError, RunError
from localjudge.records import Status, Verdict
from localjudge.runs import read_verdicts
from localjudge.store import RunStore
from localjudge.tables import open_table

LABELS = ("right", "wrong")
STEPS = ("1", "2", "3")


def verdict(row, chances, metric="check"):
    best = max(chances, key=chances.get)
    scale = best.isdigit()
    return Verdict(
        row,
        metric,
        Status.OK,
        value=int(best) if scale else best,
        label=None if scale else best,
        score=float(best) if scale else None,
        probabilities=chances,
        confidence=chances[best],
        answer_mass=0.5,
    )


@pytest.fixture
def make(tmp_path):
    """Write a run folder and a file of labels, and return both paths."""

    def make(verdicts, labels, name="run", digest="1", model="m", **columns):
        metrics = {each.metric: digest for each in verdicts}
        config = {"metrics": metrics, "model": model, "prompt_mode": "chat", "options": {}}
        places = {row: n for n, row in enumerate(dict.fromkeys(v.id for v in verdicts))}
        with RunStore.open(tmp_path / name, config) as store:
            store.save([(places[each.id], each) for each in verdicts])
            store.finish()
        human = tmp_path / f"{name}-human.jsonl"
        rows = [
            {"id": row, "label": label} | {key: values[n] for key, values in columns.items()}
            for n, (row, label) in enumerate(labels.items())
        ]
        human.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / name, human

    return make


def biased(rows, seed=0, sharp=3.0):
    """A judge that says `right` to all rows, but says it with less conviction where it is wrong."""
    random = np.random.default_rng(seed)
    verdicts, labels = [], {}
    for row in range(rows):
        truth = random.random() < 0.5
        logit = 4 + sharp * (truth - 0.5) + random.normal()
        chance = 1 / (1 + math.exp(-logit))
        verdicts.append(verdict(str(row), {"right": chance, "wrong": 1 - chance}))
        labels[str(row)] = "right" if truth else "wrong"
    return verdicts, labels


def of(make, *made, **columns):
    run, human = make(*made, **columns)
    cluster = {"cluster_column": "group"} if "group" in columns else {}
    [compared] = compare(run, human, **cluster)
    return compared


def test_a_judge_that_gives_all_rows_one_label_is_made_to_tell_them_apart(make):
    found = calibrate(of(make, *biased(300)))
    assert found.raw["kappa"].value < 0.1
    assert found.calibrated["kappa"].low > 0.5
    assert found.calibrated["log_loss"].high < found.raw["log_loss"].low
    calibrated = found.calibrated["expected_calibration_error"]
    assert calibrated.value < 0.1 < found.raw["expected_calibration_error"].low
    assert found.worth_it and found.gain.low > 0


def test_the_figures_are_of_rows_that_the_map_has_not_seen(make):
    """Noise has no gain, however well a map could fit it."""
    verdicts, labels = biased(60, sharp=0.0)
    found = calibrate(of(make, verdicts, labels))
    assert not found.worth_it
    assert found.calibrated["kappa"].value < 0.3


def test_rows_of_one_cluster_do_not_vouch_for_each_other(make):
    """Ten texts, each in thirty rows, whose chances tell the text but not the label."""
    verdicts, labels, groups = [], {}, []
    for row in range(300):
        text = row % 10
        chance = 0.05 + 0.09 * text
        verdicts.append(verdict(str(row), {"right": chance, "wrong": 1 - chance}))
        labels[str(row)] = "right" if [1, 0, 0, 1, 0, 1, 1, 0, 1, 0][text] else "wrong"
        groups.append(f"text {text}")
    assert not calibrate(of(make, verdicts, labels, group=groups)).worth_it


def test_a_scale_is_calibrated_too(make):
    random = np.random.default_rng(0)
    verdicts, labels = [], {}
    for row in range(300):
        step = int(random.integers(3))
        logits = np.array([0.0, 0.4 * (step - 1), 5 + 0.4 * step]) + random.normal(size=3) * 0.2
        chances = np.exp(logits) / np.exp(logits).sum()
        verdicts.append(verdict(str(row), dict(zip(STEPS, chances.tolist(), strict=True))))
        labels[str(row)] = step + 1
    compared = of(make, verdicts, labels)
    found = calibrate(compared)
    assert found.raw["kappa_quadratic"].value < 0.1
    assert found.calibrated["kappa_quadratic"].low > 0.4
    probabilities, answers = cross_calibrated(compared)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert (answers == probabilities.argmax(axis=1)).all()
    assert "ordinal" in {kind.name for kind in kinds(scale=True)}
    assert "ordinal" not in {kind.name for kind in kinds(scale=False)}


def test_failed_rows_stay_failed(make):
    verdicts, labels = biased(100)
    verdicts[3] = Verdict("3", "check", Status.INVALID_OUTPUT, error="no JSON")
    compared = of(make, verdicts, labels)
    probabilities, answers = cross_calibrated(compared)
    assert answers[3] == -1 and not probabilities[3].any()
    assert (answers[[0, 1, 2, 4]] >= 0).all()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda v, h: (v[:15], dict(list(h.items())[:15])), "too few labels"),
        (lambda v, h: (v, dict.fromkeys(h, "right")), "too few labels .*right 100, wrong 0"),
        (lambda v, h: ([_guided(each) for each in v], h), "answer"),
        (lambda v, h: ([_own(each) for each in v], h), "labels of its own"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(make, change, why):
    run, human = make(*change(*biased(100)))
    with pytest.raises(Exception, match=why):
        calibrate(compare(run, human)[0])


def _guided(each):
    return Verdict(each.id, "check", Status.OK, value=each.value, label=each.label)


def _own(each):
    more = each.probabilities | ({f"other {each.id}": 0.0} if int(each.id) % 2 else {})
    return verdict(each.id, more)


def test_few_clusters_are_too_few(make):
    verdicts, labels = biased(100)
    compared = of(make, verdicts, labels, group=[str(n % 3) for n in range(100)])
    with pytest.raises(DataError, match="in 3 clusters"):
        calibrate(compared)


@pytest.mark.parametrize("zero", [0.0, 1e-300])
def test_a_probability_of_nothing_is_no_infinity(make, zero):
    verdicts, labels = biased(100)
    verdicts[0] = verdict("0", {"right": 1.0 - zero, "wrong": zero})
    found = calibrate(of(make, verdicts, labels))
    assert math.isfinite(found.calibrated["log_loss"].value)


# Files


@pytest.fixture
def saved(make, tmp_path):
    run, human = make(*biased(200))
    made = calibrate_run(run, human)
    made.calibration.save(tmp_path / "calibration.json")
    return run, human, tmp_path / "calibration.json"


def test_what_is_saved_is_loaded_and_holds_no_row(saved):
    _, _, path = saved
    text = path.read_text()
    loaded = Calibration.load(path)
    assert sum(loaded.metrics["check"].counts.values()) == 200
    assert '"199"' not in text  # the id of a row
    assert loaded.model_dump() == json.loads(text)


def test_applying_writes_calibrated_verdicts_beside_the_raw_ones(saved, make):
    _, _, path = saved
    verdicts, _ = biased(150, seed=9)
    verdicts[7] = Verdict("7", "check", Status.MISSING_INPUT, error="missing or blank: a")
    other, _ = make(verdicts, {"0": "right"}, name="other")
    table, total, changed = apply_calibration(other, path)
    assert total == 149 and 40 < changed < 110
    lines = [json.loads(line) for line in (other / "calibrated.jsonl").read_text().splitlines()]
    for line, raw in zip(lines, read_verdicts(other), strict=True):
        assert {key: line[key] for key in raw.to_dict()} == raw.to_dict()
        if raw.status is not Status.OK:
            assert line["calibrated_value"] is None and line["calibrated_probabilities"] is None
            continue
        chances = line["calibrated_probabilities"]
        assert sum(chances.values()) == pytest.approx(1)
        assert line["calibrated_value"] == max(chances, key=chances.get)
        assert line["calibrated_confidence"] == max(chances.values())
    rows = list(open_table(table))
    assert [row.fields["calibrated_value"] for row in rows] == [
        line["calibrated_value"] for line in lines
    ]


def test_agreement_is_measured_of_calibrated_verdicts_and_says_where_they_were_fitted(saved, make):
    run, human, path = saved
    [raw], [fitted_here] = agree(run, human), agree(run, human, calibration=path)
    assert (raw.calibration, fitted_here.calibration) == (None, "fitted_here")
    other = make(*biased(200, seed=5), name="other")
    [elsewhere] = agree(*other, calibration=path)
    assert elsewhere.calibration == "elsewhere"
    assert elsewhere.figures["kappa"].value > 0.5 > agree(*other)[0].figures["kappa"].value


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"model": "another"}, "model: "), ({"digest": "2"}, "check: the metric's text")],
)
def test_the_calibration_of_another_judge_is_refused(saved, make, settings, named):
    _, _, path = saved
    other, _ = make(*biased(50), name="other", **settings)
    with pytest.raises(DataError, match=named):
        apply_calibration(other, path)
    assert not (other / "calibrated.jsonl").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole.update(format="localjudge calibration 2"),
        lambda whole: whole.update(extra=1),
        lambda whole: whole["metrics"]["check"].update(weights=[[1.0, 2.0]]),
        lambda whole: whole["metrics"]["check"].update(weights=[[1.0], [1.0, 2.0]]),
        lambda whole: whole["metrics"]["check"].update(offsets=[1.0]),
        lambda whole: whole["metrics"]["check"].update(offsets=[1.0, "2"]),
        lambda whole: whole["metrics"]["check"].update(labels=["right", "right"]),
        lambda whole: whole["metrics"]["check"].update(kind="ordinal"),
        lambda whole: whole["metrics"]["check"].pop("digest"),
        lambda whole: whole.update(metrics={}),
    ],
)
def test_a_damaged_file_is_refused(saved, damage):
    _, _, path = saved
    whole = json.loads(path.read_text())
    damage(whole)
    path.write_text(json.dumps(whole))
    with pytest.raises(DataError, match="no calibration file"):
        Calibration.load(path)


@pytest.mark.parametrize("text", ["", "[]", "NaN", '{"format": Infinity}', "\x80\x02}q\x00."])
def test_what_is_no_calibration_at_all_is_refused(tmp_path, text):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(DataError, match="no calibration file"):
        Calibration.load(path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunError, match="not a regular file"):
        Calibration.load(tmp_path / "pipe")
    with pytest.raises(RunError, match="cannot be read"):
        Calibration.load(tmp_path / "nothing.json")


def test_a_folder_that_cannot_be_made_is_said(saved, tmp_path):
    run, _, path = saved
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file: cannot be written"):
        apply_calibration(run, path, tmp_path / "file")


def test_a_number_that_is_not_finite_is_refused(saved):
    _, _, path = saved
    text = path.read_text()
    whole = json.loads(text)
    whole["metrics"]["check"]["offsets"][0] = math.nan
    path.write_text(json.dumps(whole))
    with pytest.raises(DataError, match="no calibration file"):
        Calibration.load(path)


def test_the_commands_fit_apply_and_measure(saved, tmp_path):
    run, human, _ = saved
    out = tmp_path / "c.json"
    command = CliRunner().invoke
    fitted = command(app, ["calibrate", str(run), "--human", str(human), "--out", str(out)])
    assert fitted.exit_code == 0, fitted.output
    assert "By cross-validation" in fitted.output and out.exists()
    applied = command(app, ["apply", str(run), "--calibration", str(out)])
    assert applied.exit_code == 0 and "200 verdicts calibrated" in applied.output
    measured = command(app, ["agree", str(run), "--human", str(human), "--calibration", str(out)])
    assert "fitted on these very labels" in measured.output


def test_without_gain_no_file_is_written_and_the_command_says_why(make, tmp_path):
    run, human = make(*biased(60, sharp=0.0))
    out = tmp_path / "c.json"
    done = CliRunner().invoke(
        app, ["calibrate", str(run), "--human", str(human), "--out", str(out)]
    )
    assert done.exit_code == 1 and not out.exists()
    assert "no more than the labels' shares alone" in done.output
