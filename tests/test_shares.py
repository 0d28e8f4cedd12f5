"""Shares corrected for a judge's errors: worked examples, degenerate tables, and the coverage."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localjudge.statistics import shares
from localjudge.statistics.rates import LEAST_ROWS, Sides, rate_figures

ROOT = Path(__file__).parent.parent
KINDS = ("judge", "labelled", "rogan_gladen", "ppi")


def parts(*pairs):
    """Return numbers repeated: (value, times) each."""
    return np.concatenate([np.full(times, value) for value, times in pairs])


def test_rogan_gladen_of_two_labels_is_their_formula():
    # 40 true ones of which the judge finds 32: sensitivity 0.8. 60 others, 54 known: 0.9.
    # It says one of 38 + 262 = 300 of 1,000 rows: (0.3 + 0.9 - 1) / (0.8 + 0.9 - 1) = 2/7.
    table, rest = np.array([[54.0, 6], [8, 32]]), np.array([638.0, 262])
    value, low, high = shares.rogan_gladen(table, rest)
    assert value == pytest.approx([5 / 7, 2 / 7])
    assert (low < value).all() and (value < high).all()
    assert (low + high[::-1]) == pytest.approx([1, 1])


def test_rogan_gladen_of_three_labels_solves_the_mixture():
    # Rows of true a, b, c are called right in 8, 7 and 9 of 10. Shares 0.2, 0.3, 0.5 give
    # 0.16 + 0.06 + 0 = 0.22 of a, 0.04 + 0.21 + 0.05 = 0.3 of b, and 0.03 + 0.45 = 0.48 of c.
    table = np.array([[8.0, 2, 0], [2, 7, 1], [0, 1, 9]])
    rest = 10_000 * np.array([0.22, 0.3, 0.48]) - table.sum(0)
    value, _, _ = shares.rogan_gladen(table, rest)
    assert value == pytest.approx([0.2, 0.3, 0.5])


def test_the_ends_of_rogan_gladen_solve_the_test_of_fieller():
    # Worked for two labels without the second sample's noise. Smoothed rates: (50.25 / 100.5,
    # 0.5) would be chance; here sensitivity = specificity = 90.25 / 100.5. The end t solves
    # (s - t)^2 = z^2 (t^2 V1 + (1 - t)^2 V0), V the variance of an error rate over the slope^2,
    # for a run so long that the labelled rows are a negligible part of it.
    table, rest = np.array([[90.0, 10], [10, 90]]), np.array([5e11, 5e11])
    _, [_, low], [_, high] = shares.rogan_gladen(table, rest)
    rate = 90.25 / 100.5
    slope = 2 * rate - 1
    variance = rate * (1 - rate) / 100.5 / slope**2
    for end in (low, high):
        square = 1.959964**2 * variance * (end**2 + (1 - end) ** 2)
        assert (0.5 - end) ** 2 == pytest.approx(square, rel=1e-5)


def test_ppi_is_the_mean_moved_by_what_the_judge_says_of_the_rest():
    # 2 of 4 rows are labelled 1 and the judge says so of the same: cov = 1/4. Of all 12 rows it
    # says 1 of 8: variance 12/11 * 2/9 = 8/33. lambda = 1/4 / ((1 + 4/8) * 8/33) = 11/16. The mean
    # is 1/2 + 11/16 * (6/8 - 2/4) = 43/64.
    people = judge = parts((1.0, 2), (0.0, 2))
    rest = parts((1.0, 6), (0.0, 2))
    assert shares.tuned(people, judge, rest) == pytest.approx(11 / 16)
    mean, variance = shares.powered_mean(people, judge, rest)
    assert mean == pytest.approx(43 / 64)
    # Residuals 5/16 and 0, twice each: squares 4 * (5/32)^2, a quarter row more, over (4 - 2) * 4;
    # and 121/256 * 8/33 / 8. That is less than the 1/12 of the labelled rows alone.
    expected = (25 / 256 + 1 / 4) / 8 + 121 / 256 / 33
    assert variance == pytest.approx(expected)
    assert variance < 1 / 12


@pytest.mark.parametrize("said", [parts((1.0, 5), (0.0, 5), (1.0, 5), (0.0, 5)), np.ones(20)])
def test_ppi_with_a_judge_that_says_nothing_is_the_classical_estimate(said):
    people = parts((1.0, 10), (0.0, 10))  # the judge says 1 of half of each, or of all
    rest = said.repeat(50)
    assert shares.tuned(people, said, rest) == 0
    mean, variance = shares.powered_mean(people, said, rest)
    assert mean == 0.5
    assert variance == pytest.approx(people.var(ddof=1) / 20)


def test_wilson_of_a_published_example():
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81 of 263.
    low, high = shares.wilson(np.array(81 / 263), np.array(263.0))
    assert (float(low), float(high)) == pytest.approx((0.2553, 0.3662), abs=1e-4)


def test_a_design_effect_is_the_size_of_clusters_that_are_all_alike():
    residuals = parts((1.0, 4), (-1.0, 4), (1.0, 4), (-1.0, 4))
    # Sums +-4 of four clusters: 4/3 * 64 / 16.
    assert shares.design_effect(residuals, np.arange(16) // 4) == pytest.approx(16 / 3)
    assert shares.design_effect(residuals, np.arange(16)) == 1
    assert shares.design_effect(np.zeros(16), np.arange(16) // 4) == 4


@pytest.mark.parametrize(("freedom", "quantile"), [(5, 2.5706), (10, 2.2281), (48, 2.0106)])
def test_quantiles_of_student(freedom, quantile):
    assert shares.t_quantile(freedom) == pytest.approx(quantile, rel=2e-3)


def test_more_labels_narrow_every_interval():
    random = np.random.default_rng(3)
    people, rest = random.integers(2, size=60), random.integers(2, size=2000)
    judge = np.where(random.random(60) < 0.85, people, 1 - people)
    sides = Sides(people, judge, rest)
    now, then = (rate_figures(sides, ("no", "yes"), more=more) for more in (0, 180))
    for kind in KINDS[1:]:
        name = f"{kind}:yes"
        assert then[name].value == now[name].value
        # Four times the labels: half the width, but for the noise of the other rows.
        assert 0.45 < then[name].half_width / now[name].half_width < 0.62


def test_rows_that_belong_together_widen_every_interval():
    random = np.random.default_rng(4)
    people = random.integers(2, size=60)
    judge = np.where(random.random(60) < 0.8, people, 1 - people)
    rest = random.integers(2, size=300)
    single = Sides(people, judge, rest)
    doubled = Sides(people.repeat(4), judge.repeat(4), rest.repeat(4))
    clustered = Sides(
        people.repeat(4),
        judge.repeat(4),
        rest.repeat(4),
        clusters=np.arange(60).repeat(4),
        rest_clusters=np.arange(300).repeat(4),
    )
    figures = [rate_figures(sides, ("no", "yes")) for sides in (single, doubled, clustered)]
    for kind in KINDS[1:]:
        alone, naive, right = (found[f"{kind}:yes"].half_width for found in figures)
        assert naive < 0.65 * alone
        assert right == pytest.approx(alone, rel=0.12)


def test_what_cannot_be_told_is_null_with_the_reason():
    people, judge = parts((0, 20), (1, 20)), parts((0, 40))
    found = rate_figures(Sides(people, judge, np.zeros(50, int)), ("no", "yes"))
    assert found["rogan_gladen:yes"].value is None
    assert "never gives 'yes'" in found["rogan_gladen:yes"].reason
    assert "same of every row" in found["ppi:yes"].reason
    found = rate_figures(Sides(judge, people, np.zeros(50, int)), ("no", "yes"))
    assert "people never give the label 'yes'" in found["ppi:yes"].reason
    assert found["labelled:yes"].high > 0.05
    found = rate_figures(Sides(people, people, np.zeros(0, int)), ("no", "yes"))
    assert "every row is labelled" in found["ppi:yes"].reason
    few = LEAST_ROWS - 1
    found = rate_figures(Sides(people[-few:], people[-few:], people), ("no", "yes"))
    assert found["ppi:yes"].reason == f"{few} labelled rows have a verdict: it takes {LEAST_ROWS}"
    found = rate_figures(Sides(people, parts((0, 10), (1, 20), (0, 10)), people), ("no", "yes"))
    assert "the judge says the same of two labels" in found["rogan_gladen:yes"].reason


def test_a_label_that_nobody_gives_does_not_stop_the_others():
    people, judge = parts((0, 20), (2, 20)), parts((0, 18), (2, 20), (0, 2))
    found = rate_figures(Sides(people, judge, judge.repeat(9)), ("a", "b", "c"))
    two = rate_figures(Sides(people // 2, judge // 2, judge.repeat(9) // 2), ("a", "c"))
    assert found["rogan_gladen:b"].reason == "neither people nor the judge give it"
    for name in ("rogan_gladen:a", "rogan_gladen:c"):
        assert found[name] == two[name]
        assert found[name].value is not None


def test_clusters_without_an_error_do_not_show_a_perfect_judge():
    people = parts((0, 40), (1, 40))
    rest = people.repeat(20)
    single = Sides(people[::4], people[::4], rest)
    four = Sides(
        people, people, rest, clusters=np.arange(80) // 4, rest_clusters=np.arange(len(rest))
    )
    one, other = (rate_figures(sides, ("no", "yes"))["ppi:yes"] for sides in (single, four))
    assert other.half_width == pytest.approx(one.half_width, rel=0.15)


@st.composite
def any_sides(draw):
    number = draw(st.integers(2, 4))
    place = st.integers(0, draw(st.integers(0, number - 1)))
    rows = draw(st.integers(0, 45))
    people, judge = (draw(st.lists(place, min_size=rows, max_size=rows)) for _ in range(2))
    rest = draw(st.lists(place, max_size=40))
    return number, Sides(*(np.array(side, dtype=np.int64) for side in (people, judge, rest)))


@settings(max_examples=200, deadline=None)
@given(any_sides(), st.booleans())
def test_any_table_gives_shares_within_their_intervals_or_a_reason(drawn, scale):
    number, sides = drawn
    labels = [str(place) for place in range(number)]
    values = np.arange(1.0, number + 1) if scale else None
    for name, figure in rate_figures(sides, labels, values=values).items():
        least, most = (1, number) if name.endswith("_mean") else (0, 1)
        if figure.value is None or figure.low is None:
            assert figure.reason
        else:
            assert least <= figure.low <= figure.value <= figure.high <= most, name
            assert figure.method in ("wilson", "fieller", "student")


def test_intervals_cover_the_truth_in_92_to_98_of_100_trials():
    script = ROOT / "benchmarks" / "rates_coverage.py"
    done = subprocess.run(
        [sys.executable, str(script), "--trials", "600"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    found = json.loads(done.stdout.splitlines()[-1])["settings"]
    assert {each["n"] for each in found} == {50, 100, 200}
    noise = 0.025  # about three standard errors of 600 trials
    for each in found:
        for name in ("labelled", "rogan_gladen", "ppi_labels", "ppi_probabilities"):
            trials = 600 * each[name]["given"]
            if name == "rogan_gladen" and each["accuracy"] <= 0.5:
                assert each[name]["given"] < 0.08, each  # at chance it is refused
            elif trials > 300:
                assert 0.92 - noise <= each[name]["coverage"] <= 0.98 + noise, (name, each)
