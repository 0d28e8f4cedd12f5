"""Resamples and intervals, against scipy and by simulation."""

import numpy as np
import pytest
from scipy import stats

from localjudge.statistics.bootstrap import Resampling, interval
from localjudge.statistics.figures import estimate

SKEWED = np.random.default_rng(3).exponential(size=40)


def mean(weights):
    return {"mean": weights @ SKEWED / weights.sum(1)}


def test_the_interval_is_scipys_bca_of_the_same_resamples():
    result = stats.bootstrap((SKEWED,), np.mean, method="BCa", rng=np.random.default_rng(0))
    left_out = (SKEWED.sum() - SKEWED) / 39
    low, high, method, reason = interval(SKEWED.mean(), result.bootstrap_distribution, left_out)
    assert (low, high) == pytest.approx(tuple(result.confidence_interval))
    assert (method, reason) == ("bca", None)


def test_a_figure_of_rows_has_the_interval_that_scipy_finds():
    figure = estimate(mean, Resampling(np.arange(40), resamples=20_000), {})["mean"]
    theirs = stats.bootstrap((SKEWED,), np.mean, n_resamples=20_000).confidence_interval
    assert figure.value == pytest.approx(SKEWED.mean())
    assert (figure.low, figure.high) == pytest.approx(tuple(theirs), abs=0.02)


def test_the_same_seed_gives_the_same_interval():
    rows = np.arange(40)
    one, same, other = (estimate(mean, Resampling(rows, seed=seed), {}) for seed in (1, 1, 2))
    assert one == same != other


def test_each_resample_draws_as_many_rows_as_there_are():
    draws = np.concatenate(list(Resampling(np.arange(7), resamples=1000).draws()))
    assert draws.shape == (1000, 7)
    assert (draws.sum(1) == 7).all()
    assert draws.mean(0) == pytest.approx(np.ones(7), abs=0.15)


def test_rows_of_one_cluster_are_drawn_together():
    clusters = np.array([0, 1, 0, 2, 1, 0])
    [draws] = Resampling(clusters, resamples=50).draws()
    assert (draws[:, 0] == draws[:, 2]).all() and (draws[:, 0] == draws[:, 5]).all()
    assert (draws[:, [0, 1, 3]].sum(1) == 3).all()
    [left_out] = Resampling(clusters).left_out()
    assert sorted(left_out.sum(1)) == [3, 4, 5]


def test_clusters_worked_by_hand():
    """Two clusters, all 1 and all 0: a resample has both 1s, one of each or both 0s, 1:2:1."""
    clusters, values = np.array([0, 0, 1, 1]), np.array([1.0, 1.0, 0.0, 0.0])
    [draws] = Resampling(clusters, resamples=4000).draws()
    means = draws @ values / draws.sum(1)
    shares = [(means == value).mean() for value in (0, 0.5, 1)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_leaving_out_groups_gives_the_acceleration_of_single_rows():
    values = np.random.default_rng(0).exponential(size=5000)

    def acceleration(left_out):
        away = left_out.mean() - left_out
        return (away**3).sum() / (6 * (away**2).sum() ** 1.5)

    grouped = []
    for seed in range(8):
        batches = Resampling(np.arange(5000), seed=seed).left_out()
        groups = np.concatenate([weights @ values / weights.sum(1) for weights in batches])
        assert len(groups) == 500
        grouped.append(acceleration(groups))
    single = acceleration((values.sum() - values) / 4999)
    assert np.mean(grouped) == pytest.approx(single, rel=0.25)


def test_a_figure_without_spread_has_no_interval():
    def same(weights):
        return {"f": 1 + 1e-15 * weights[:, 0], "none": 0 * weights[:, 0]}  # but for rounding

    figures = estimate(same, Resampling(np.arange(9)), {})
    assert figures["none"].low is None
    figure = figures["f"]
    assert (figure.value, figure.low) == (pytest.approx(1), None)
    assert "no spread" in figure.reason


def test_a_figure_that_is_often_undefined_has_no_interval():
    def statistic(weights):
        return {"f": np.where(weights[:, 0] > 0, weights[:, 1], np.nan)}

    figure = estimate(statistic, Resampling(np.arange(9)), {})["f"]
    assert (figure.value, figure.low) == (1, None)
    assert "undefined in" in figure.reason


def test_an_undefined_figure_says_why():
    figure = estimate(
        lambda w: {"f:a": np.full(len(w), np.nan)}, Resampling(np.arange(3)), {"f": "no luck"}
    )["f:a"]
    assert figure.to_dict() == {
        "value": None,
        "low": None,
        "high": None,
        "method": None,
        "reason": "no luck",
    }


def test_the_ends_are_percentiles_where_the_correction_is_undefined():
    drawn = np.linspace(0, 1, 1001)
    low, high, method, _ = interval(0.5, drawn, np.full(5, np.nan))
    assert (low, high, method) == (pytest.approx(0.025), pytest.approx(0.975), "percentile")


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    random = np.random.default_rng(7)
    covered = 0
    for trial in range(200):
        right = (random.random(80) < 0.7).astype(float)
        statistic = lambda w, right=right: {"f": w @ right / w.sum(1)}  # noqa: E731
        figure = estimate(statistic, Resampling(np.arange(80), 500, trial), {})["f"]
        covered += figure.low <= 0.7 <= figure.high
    assert 180 <= covered <= 198
