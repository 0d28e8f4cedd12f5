"""Correlations against scipy, ties included."""

import numpy as np
import pytest
from scipy import stats

from localjudge.statistics.correlation import correlation


def values_of(human, judge):
    statistic = correlation(np.asarray(human, float), np.asarray(judge, float))
    return {name: value for name, [value] in statistic(np.ones((1, len(human)))).items()}


def sides(seed):
    random = np.random.default_rng(seed)
    rows = int(random.integers(3, 60))
    human = random.integers(1, 6, size=rows).astype(float)
    human[:2] = 1, 5
    judge = human + random.normal(size=rows)
    return human, (judge if seed % 2 else np.round(judge))


@pytest.mark.parametrize("seed", range(20))
def test_correlations_agree_with_scipy(seed):
    human, judge = sides(seed)
    ours = values_of(human, judge)
    assert ours["pearson"] == pytest.approx(stats.pearsonr(human, judge).statistic)
    assert ours["spearman"] == pytest.approx(stats.spearmanr(human, judge).statistic)
    assert ours["kendall_tau_b"] == pytest.approx(stats.kendalltau(human, judge).statistic)
    assert ours["mean_absolute_error"] == pytest.approx(np.abs(human - judge).mean())


@pytest.mark.parametrize("seed", range(4))
def test_weights_stand_for_repeated_rows(seed):
    human, judge = sides(seed)
    weights = np.random.default_rng(seed).integers(3, size=(4, len(human)))
    weighted = correlation(human, judge)(weights.astype(float))
    for place, times in enumerate(weights):
        repeated = values_of(np.repeat(human, times), np.repeat(judge, times))
        for name, value in repeated.items():
            assert weighted[name][place] == pytest.approx(value, nan_ok=True)


def test_a_constant_side_has_no_correlation():
    ours = values_of([1, 2, 3, 4], [0.1 + 0.2] * 4)
    assert all(np.isnan(ours[name]) for name in ("pearson", "spearman", "kendall_tau_b"))
    resample = np.array([[0.0, 3.0, 0.0]])  # the same row three times
    drawn = correlation(np.array([1.0, 2, 4]), np.array([0.1, 0.7, 0.3]))(resample)
    assert np.isnan(drawn["pearson"]) and np.isnan(drawn["spearman"])
    assert np.isnan(drawn["kendall_tau_b"])


def test_one_row_has_an_error_and_no_correlation():
    ours = values_of([3], [5])
    assert ours.pop("mean_absolute_error") == 2
    assert all(np.isnan(value) for value in ours.values())


def test_tau_b_worked_by_hand():
    """Of (1,1) (1,2) (2,2) (3,1): pairs +1: (1,1)-(2,2); -1: (1,2)-(3,1), (2,2)-(3,1).

    Of six pairs one is tied on the left and two on the right: -1 / sqrt(5 * 4).
    """
    ours = values_of([1, 1, 2, 3], [1, 2, 2, 1])
    assert ours["kendall_tau_b"] == pytest.approx(-1 / np.sqrt(20))
