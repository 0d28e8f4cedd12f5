"""The shares of a run's labels, from files to figures and what is printed."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from localjudge.cli import app
from localjudge.errors import ConfigError
from localjudge.rates import ESTIMATES, rates, write_rates
from localjudge.statistics.rates import Sides, rate_figures
from tests.test_agreement import failed, grade, label, people, run

__all__ = ["people", "run"]  # fixtures

LABELS = ("right", "wrong")
places = st.lists(st.integers(0, 2), min_size=0, max_size=60)


@settings(max_examples=150, deadline=None)
@given(places, places, st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_any_rows_have_figures_or_reasons(human, rest, seed, graded, read):
    random = np.random.default_rng(seed)
    judge = random.integers(3, size=len(human))
    sides = Sides(
        np.array(human, dtype=int),
        judge,
        np.array(rest, dtype=int),
        random.dirichlet(np.ones(3), len(human)) if read else None,
        random.dirichlet(np.ones(3), len(rest)) if read else None,
        np.unique(random.integers(20, size=len(human)), return_inverse=True)[1],
        np.unique(random.integers(20, size=len(rest)), return_inverse=True)[1],
    )
    values = np.array([1.0, 2.0, 3.0]) if graded else None
    figures = rate_figures(sides, ["a", "b", "c"], values=values)
    assert len(figures) == 12 + 3 * graded
    for name, figure in figures.items():
        low, high = (1, 3) if name.endswith("_mean") else (0, 1)
        if figure.value is None:
            assert figure.reason
        elif figure.low is None:
            assert figure.reason and figure.high is None
        else:
            assert low <= figure.low <= figure.value <= figure.high <= high, name


def runs(run, people, rows=600, labelled=80, right=0.85, block=False):
    """A run whose judge is wrong now and then; people say wrong to three rows of ten."""
    random = np.random.default_rng(5)
    truth = np.where(random.random(rows) < 0.3, "wrong", "right")
    other = np.where(truth == "right", "wrong", "right")
    said = np.where(random.random(rows) < right, truth, other)
    folder = run(*(label(str(row), str(said[row])) for row in range(rows)))
    chosen = np.arange(labelled) if block else random.permutation(rows)[:labelled]
    return folder, people(*({"id": int(row), "label": str(truth[row])} for row in chosen)), said


def test_a_run_has_every_estimate_with_its_interval(run, people):
    folder, human, said = runs(run, people)
    [found] = rates(folder, human)
    assert (found.labelled, found.unlabelled, found.coverage) == (80, 520, 1)
    assert found.warnings == ()
    assert found.figures["judge:wrong"].value == pytest.approx((said == "wrong").mean())
    for estimate in ESTIMATES[1:]:
        figure = found.figures[f"{estimate}:wrong"]
        assert figure.low < 0.3 < figure.high, estimate
    widths = [found.figures[f"{name}:wrong"] for name in ("ppi", "labelled")]
    assert widths[0].high - widths[0].low < widths[1].high - widths[1].low


def test_rows_without_a_verdict_are_counted_and_said(run, people):
    verdicts = [label(str(row), LABELS[row % 3 == 0]) for row in range(97)]
    folder = run(*verdicts, *(failed(str(row)) for row in range(97, 100)))
    labelled = ({"id": row, "label": LABELS[row % 3 == 0]} for row in range(0, 100, 3))
    [found] = rates(folder, people(*labelled))
    assert found.statuses == {"ok": 97, "invalid_output": 3}
    assert found.coverage == 0.97
    assert found.labelled == 33
    assert any("3.0% of the rows have no verdict" in warning for warning in found.warnings)


def test_the_first_rows_of_a_file_are_no_random_sample(run, people):
    folder, human, _ = runs(run, people, block=True)
    [found] = rates(folder, human)
    assert found.sampling.block < 1e-9
    assert any("one block" in warning for warning in found.warnings)


def test_rows_picked_by_their_verdict_are_no_random_sample(run, people):
    verdicts = [label(str(row), LABELS[row % 2]) for row in range(300)]
    labelled = ({"id": row, "label": LABELS[row % 2]} for row in range(0, 200, 2))
    [found] = rates(run(*verdicts), people(*labelled))
    assert found.sampling.labels == found.sampling.probabilities == 0.001
    assert sum("no random sample" in warning for warning in found.warnings) == 2


def reasons(found, name="wrong"):
    return {each: found.figures[f"{each}:{name}"].reason for each in ESTIMATES}


def test_too_few_labels_one_class_and_no_other_rows_have_reasons(run, people):
    folder = run(*(label(str(row), LABELS[row % 2]) for row in range(100)))
    few = reasons(rates(folder, people(*({"id": row, "label": "right"} for row in range(9))))[0])
    assert few["ppi"] == few["rogan_gladen"] == "9 labelled rows have a verdict: it takes 20"
    one = reasons(rates(folder, people(*({"id": row, "label": "right"} for row in range(50))))[0])
    assert "people never give the label 'wrong'" in one["ppi"]
    assert "people never give 'wrong'" in one["rogan_gladen"]
    every = [{"id": row, "label": LABELS[row % 2]} for row in range(100)]
    done = reasons(rates(folder, people(*every))[0])
    assert "every row is labelled" in done["ppi"] and "every row" in done["rogan_gladen"]


def test_a_label_that_the_judge_never_gives_cannot_be_inverted(run, people):
    folder = run(*(label(str(row), "right") for row in range(100)))
    labelled = ({"id": row, "label": LABELS[row % 4 == 0]} for row in range(0, 100, 3))
    [found] = rates(folder, people(*labelled))
    assert "the judge never gives 'wrong'" in found.figures["rogan_gladen:right"].reason
    assert found.figures["rogan_gladen:right"].value is None
    assert "the judge says the same of every row" in found.figures["ppi:wrong"].reason
    assert found.figures["labelled:wrong"].low is not None


def test_a_scale_has_a_corrected_mean(run, people):
    """The judge gives one grade too many to every row that is not the best."""
    grades = [1 + row * row % 5 for row in range(400)]
    folder = run(*(grade(str(row), min(5, each + 1)) for row, each in enumerate(grades)))
    random = np.random.default_rng(0).permutation(400)[:100]
    [found] = rates(folder, people(*({"id": int(row), "label": grades[row]} for row in random)))
    mean = found.figures["ppi_mean"]
    assert mean.low < np.mean(grades) < mean.high
    assert mean.method == "student"
    assert mean.high - mean.low < 0.6 * (
        found.figures["labelled_mean"].high - found.figures["labelled_mean"].low
    )


def test_clusters_widen_the_intervals(run, people):
    """Twenty documents of ten rows each, all alike within a document."""
    truth = [LABELS[row // 10 % 3 == 0] for row in range(600)]
    said = [LABELS[row // 10 % 4 == 0] for row in range(600)]
    folder = run(*(label(str(row), each) for row, each in enumerate(said)))
    rows = [{"id": row, "label": truth[row], "doc": row // 10} for row in range(0, 600, 3)]
    rows += [{"id": row, "label": None, "doc": row // 10} for row in range(600) if row % 3]
    path = people(*rows)
    [alone], [together] = rates(folder, path), rates(folder, path, cluster_column="doc")
    assert not together.warnings
    for estimate in ("labelled", "rogan_gladen", "ppi"):
        single, wide = (each.figures[f"{estimate}:wrong"] for each in (alone, together))
        if wide.value is not None:
            assert wide.high - wide.low > 1.3 * (single.high - single.low), estimate
    assert together.figures["ppi:wrong"].value == alone.figures["ppi:wrong"].value


def test_rows_that_the_human_file_does_not_name_have_no_cluster(run, people):
    folder = run(*(label(str(row), LABELS[row % 2]) for row in range(90)))
    labelled = ({"id": row, "label": LABELS[row % 2], "doc": row // 4} for row in range(60))
    [found] = rates(folder, people(*labelled), cluster_column="doc")
    assert any("30 unlabelled rows have no cluster" in warning for warning in found.warnings)


def test_more_labels_narrow_the_intervals_and_cannot_exceed_the_rows(run, people):
    folder, human, _ = runs(run, people)
    [found] = rates(folder, human, more_labels=[80, 520])
    for estimate in ESTIMATES[1:]:
        widths = [
            each[f"{estimate}:wrong"].high - each[f"{estimate}:wrong"].low
            for each in (found.figures, found.expected[80], found.expected[520])
        ]
        assert widths[0] > widths[1] > widths[2], estimate
    with pytest.raises(ConfigError, match="521 more labels: the run has 520 rows"):
        rates(folder, human, more_labels=[521])


def test_the_json_has_no_number_where_there_is_none(run, people, tmp_path):
    folder = run(*(label(str(row), LABELS[row % 2]) for row in range(40)))
    labelled = ({"id": row, "label": LABELS[row % 2]} for row in range(5))
    write_rates(rates(folder, people(*labelled)), tmp_path / "rates.json")
    found = json.loads((tmp_path / "rates.json").read_text())["check"]
    assert found["shares"]["right"]["ppi"]["value"] is None
    assert "it takes 20" in found["shares"]["right"]["ppi"]["reason"]
    assert found["mean"] is None


def test_the_command_prints_shares_and_says_which_to_read(run, people, tmp_path):
    folder, human, _ = runs(run, people)
    options = ["--human", human, "--more-labels", 100, "--json", tmp_path / "rates.json"]
    done = CliRunner().invoke(app, list(map(str, ["rates", folder, *options])))
    assert done.exit_code == 0, done.output
    for text in ("80 rows with a verdict", "prediction-powered", "Rogan-Gladen", "100 more +-"):
        assert text in done.output
    assert "are a random sample of the run" in done.output
    found = json.loads((tmp_path / "rates.json").read_text())["check"]
    assert found["expected_half_widths"]["100"]["ppi:wrong"] > 0


def test_agree_says_what_more_labels_would_give(run, people):
    folder, human, _ = runs(run, people)
    arguments = ["agree", folder, "--human", human, "--more-labels", 240, "--resamples", 200]
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    [line] = [line for line in done.output.splitlines() if line.startswith("  accuracy  ")][-1:]
    now, then = map(float, line.split()[-2:])
    assert then == pytest.approx(now / 2, abs=0.001)
