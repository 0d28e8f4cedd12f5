"""Corrected rates from a run folder and a file of labels, to figures and what is printed."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from localjudge.agreement import agree
from localjudge.cli import app
from localjudge.errors import ConfigError
from localjudge.rates import rates, write_rates
from localjudge.records import Status, Verdict
from tests.test_agreement import failed, grade, label, people, run  # noqa: F401

ROWS, LABELLED = 400, 80


@pytest.fixture
def drawn():
    """True labels of 400 rows, what a judge says of them, and 80 rows drawn at random."""
    random = np.random.default_rng(8)
    true = random.random(ROWS) < 0.3
    judge = np.where(random.random(ROWS) < 0.85, true, ~true)
    return true, judge, np.sort(random.permutation(ROWS)[:LABELLED])


def verdicts(judge):
    return [label(str(row), "wrong" if said else "right") for row, said in enumerate(judge)]


def rows(true, chosen, **columns):
    return [
        {"id": int(row), "label": "wrong" if true[row] else "right"}
        | {name: of(row) for name, of in columns.items()}
        for row in chosen
    ]


def test_a_judge_is_corrected_by_the_labelled_rows(run, people, drawn):  # noqa: F811
    true, judge, chosen = drawn
    [found] = rates(run(*verdicts(judge)), people(*rows(true, chosen)))
    assert (found.labelled, found.unlabelled, found.coverage) == (80, 320, 1)
    assert found.warnings == ()
    figures = found.figures
    assert figures["judge:wrong"].value == pytest.approx(judge.mean())
    assert figures["judge:wrong"].low is None
    assert figures["labelled:wrong"].value == pytest.approx(true[chosen].mean())
    # By the formula of Rogan and Gladen.
    of_true, of_others = judge[chosen][true[chosen]], judge[chosen][~true[chosen]]
    formula = (judge.mean() - of_others.mean()) / (of_true.mean() - of_others.mean())
    assert figures["rogan_gladen:wrong"].value == pytest.approx(formula)
    for kind in ("labelled", "rogan_gladen", "ppi"):
        assert figures[f"{kind}:wrong"].low < true.mean() < figures[f"{kind}:wrong"].high
    assert figures["ppi:wrong"].half_width < figures["labelled:wrong"].half_width


def test_failed_rows_are_counted_and_left_out(run, people, drawn):  # noqa: F811
    true, judge, chosen = drawn
    lost = [failed(str(row)) for row in range(ROWS, ROWS + 10)]
    human = [*rows(true, chosen), {"id": ROWS, "label": "right"}]
    [found] = rates(run(*verdicts(judge), *lost), people(*human))
    assert found.statuses == {"ok": ROWS, "invalid_output": 10}
    assert (found.labelled, found.unlabelled) == (80, 320)
    assert found.coverage == pytest.approx(400 / 410)
    assert any("2.4% of the rows have no verdict" in warning for warning in found.warnings)


def test_rows_that_are_no_random_sample_are_warned_of(run, people, drawn):  # noqa: F811
    true, judge, _ = drawn
    folder = run(*verdicts(judge))
    [found] = rates(folder, people(*rows(true, range(60, 140))))
    assert [warning for warning in found.warnings if "in one block of the run" in warning]
    chosen = np.flatnonzero(judge)[::2]
    [found] = rates(folder, people(*rows(true, chosen)))
    assert found.sampling.labels == 0.001
    assert any("labels differ from those of the other rows" in text for text in found.warnings)
    assert any("probabilities differ" in text for text in found.warnings)


def test_clusters_widen_the_intervals_and_missing_ones_are_named(run, people, drawn):  # noqa: F811
    true, judge, chosen = drawn
    true, judge = np.repeat(true[:100], 4), np.repeat(judge[:100], 4)  # four alike each
    chosen = np.flatnonzero(np.isin(np.arange(ROWS) // 4, chosen[:30] % 100))
    folder = run(*verdicts(judge))
    human = rows(true, chosen, document=lambda row: f"d{row // 4}")
    [plain] = rates(folder, people(*human))
    [found] = rates(folder, people(*human), cluster_column="document")
    for kind in ("labelled", "ppi", "rogan_gladen"):
        name = f"{kind}:wrong"
        assert found.figures[name].half_width > 1.3 * plain.figures[name].half_width
    assert any("unlabelled rows have no cluster" in warning for warning in found.warnings)


def test_a_scale_has_a_corrected_mean_grade(run, people):  # noqa: F811
    random = np.random.default_rng(2)
    true = random.integers(1, 6, 300)
    judge = np.clip(true + random.integers(0, 2, 300), 1, 5)  # half a grade too kind
    folder = run(*(grade(str(row), int(said)) for row, said in enumerate(judge)))
    chosen = random.permutation(300)[:100]
    human = people(*({"id": int(row), "label": int(true[row])} for row in chosen))
    [found] = rates(folder, human)
    mean = found.figures["ppi_mean"]
    assert mean.low < true.mean() < mean.high
    assert mean.half_width < 0.7 * found.figures["labelled_mean"].half_width
    assert found.figures["judge_mean"].value > found.figures["labelled_mean"].low
    assert set(found.to_dict()["mean"]) == {"judge", "labelled", "ppi"}


def test_verdicts_without_probabilities_are_taken_as_they_are(run, people, drawn):  # noqa: F811
    true, judge, chosen = drawn
    said = [
        Verdict(str(row), "toxicity", Status.OK, value=word, label=word)
        for row, word in enumerate(np.where(judge, "toxic", "non-toxic").tolist())
    ]
    folder, human = run(*said), people(*rows(true, chosen))
    [found] = rates(folder, human, map_labels={"wrong": "toxic", "right": "non-toxic"})
    assert found.sampling.probabilities is None
    assert found.figures["ppi:toxic"].low < true.mean() < found.figures["ppi:toxic"].high


def test_more_labels_than_rows_are_refused(run, people, drawn):  # noqa: F811
    true, judge, chosen = drawn
    folder, human = run(*verdicts(judge)), people(*rows(true, chosen))
    with pytest.raises(ConfigError, match="the run has 320 rows with a verdict and no label"):
        rates(folder, human, more_labels=[321])
    with pytest.raises(ConfigError, match="must be positive"):
        agree(folder, human, more_labels=[0])


def test_agreement_with_four_times_the_labels_has_half_the_width(run, people, drawn):  # noqa: F811
    true, judge, chosen = drawn
    folder, human = run(*verdicts(judge)), people(*rows(true, chosen))
    [found] = agree(folder, human, more_labels=[240])
    for name in ("accuracy", "kappa", "macro_f1"):
        ratio = found.expected[240][name].half_width / found.figures[name].half_width
        assert 0.42 < ratio < 0.58
    assert found.to_dict()["expected_half_widths"]["240"]["kappa"] > 0


def test_the_commands_print_and_write(run, people, drawn, tmp_path):  # noqa: F811
    true, judge, chosen = drawn
    folder, human = run(*verdicts(judge)), people(*rows(true, chosen))
    out = tmp_path / "rates.json"
    arguments = ["rates", folder, "--human", human, "--more-labels", 100, "--json", out]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    texts = ("80 rows with a verdict", "coverage    100.0%", "Rogan-Gladen", "100 more +-")
    for text in (*texts, "Read `prediction-powered` if", "Read `Rogan-Gladen` if"):
        assert text in done.output
    whole = json.loads(out.read_text())["check"]
    assert set(whole["shares"]["wrong"]) == {"judge", "labelled", "rogan_gladen", "ppi"}
    assert whole["expected_half_widths"]["100"]["ppi:wrong"] > 0
    write_rates(rates(folder, human, more_labels=[100]), tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == out.read_bytes()
    arguments = ["agree", folder, "--human", human, "--more-labels", 100, "--resamples", 100]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    assert "100 more +-" in done.output
