"""Estimates of shares: hand-worked, against others, and by simulation."""

import numpy as np
import pytest
from scipy import stats

from localjudge.statistics import shares

ROWS = 2000


@pytest.mark.parametrize("freedom", [3, 5, 10, 48, 500])
def test_the_quantile_of_students_t_is_scipys(freedom):
    assert shares.t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=0.01)


@pytest.mark.parametrize(("right", "rows"), [(0, 9), (3, 40), (25, 50), (60, 60)])
def test_wilsons_interval_is_scipys(right, rows):
    theirs = stats.binomtest(right, rows).proportion_ci(method="wilson")
    ours = shares.wilson(np.array(right / rows), np.array(float(rows)))
    assert ours == pytest.approx((theirs.low, theirs.high))


def test_rogan_gladen_worked_by_hand():
    """Sensitivity 18/20, specificity 64/80, and 40 % of all rows are called positive.

    (0.4 + 0.8 - 1) / (0.9 + 0.8 - 1) = 2/7.
    """
    table, rest = np.array([[18.0, 2.0], [16.0, 64.0]]), np.array([366.0, 534.0])
    values, low, high = shares.rogan_gladen(table, rest)
    assert values == pytest.approx([2 / 7, 5 / 7])
    assert (low < values).all() and (values < high).all()
    assert low[0] + high[1] == pytest.approx(1)


def test_three_labels_worked_by_hand():
    """True shares 0.5, 0.3 and 0.2, mixed by the judge: 0.43, 0.31 and 0.26 come out."""
    table = np.array([[16.0, 2.0, 2.0], [2.0, 16.0, 2.0], [1.0, 2.0, 7.0]])
    mixture = np.array([0.5, 0.3, 0.2]) @ np.array(
        [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.2, 0.7]]
    )
    rest = 1050 * mixture - table.sum(0)
    assert shares.inverted(table, rest) == pytest.approx([0.5, 0.3, 0.2])


def test_a_judge_at_chance_rules_out_no_share():
    table, rest = np.array([[10.0, 10.0], [10.0, 10.0]]), np.array([500.0, 500.0])
    values, low, high = shares.rogan_gladen(table, rest)
    assert np.isnan(values).all()
    assert np.isinf(low).all() and np.isinf(high).all()


def test_the_tuned_mean_worked_by_hand():
    """Cov = 1/8; the variance over all 12 is 35/132; lambda = (1/8) / (1.5 * 35/132) = 11/35.

    The mean is 1/2 + 11/35 * (1/2 - 1/4) = 81/140.
    """
    given, read = np.array([1.0, 1, 0, 0]), np.array([1.0, 0, 0, 0])
    rest = np.array([1.0, 1, 1, 1, 0, 0, 0, 0])
    assert shares.tuned(given, read, rest) == pytest.approx(11 / 35)
    mean, _ = shares.powered_mean(given, read, rest)
    assert mean == pytest.approx(81 / 140)


def test_the_tuned_mean_is_that_of_ppi_python():
    """What `ppi_py.ppi_mean_pointestimate(given, read, rest)` of ppi-python 0.2.3 returns."""
    given = np.array([1.0, 0, 1, 1, 0, 0, 1, 0, 0, 1])
    read = np.array([0.9, 0.2, 0.4, 0.8, 0.7, 0.1, 0.6, 0.3, 0.5, 0.2])
    rest = np.array([1, 2, 8, 9, 4, 3, 7, 2, 1, 5, 6, 3, 2, 1, 9, 8, 3, 4, 2, 1]) / 10
    mean, _ = shares.powered_mean(given, read, rest)
    assert mean == pytest.approx(0.46884766)


def test_a_judge_that_tells_nothing_leaves_the_labelled_share():
    given, read = np.array([1.0, 1, 0, 0] * 10), np.array([1.0, 0, 1, 0] * 10)
    rest = np.array([1.0, 1, 1, 0] * 50)
    value, *ends = shares.powered_share(given, read, rest)
    assert shares.tuned(given, read, rest) == 0
    assert value == 0.5
    assert ends == pytest.approx(
        shares.wilson(np.array(0.5), np.array(40.0), shares.t_quantile(38))
    )


def test_a_judge_without_an_error_is_not_taken_for_perfect():
    given = np.array([1.0, 0, 0, 0] * 10)
    rest = np.array([1.0, 0, 0, 0] * 500)
    _, low, high = shares.powered_share(given, given, rest)
    assert high - low > 2 * 1.96 * np.sqrt(0.25 * 0.75 / 2040)


def test_rows_that_belong_together_have_a_design_effect():
    """Five clusters of four equal rows: the variance is four times as large, times 5/4."""
    residuals = np.repeat([1.0, -1, 1, -1, 0], 4)
    clusters = np.repeat(np.arange(5), 4)
    assert shares.design_effect(residuals, clusters) == pytest.approx(4 * 5 / 4)
    assert shares.design_effect(residuals, np.arange(20)) == 1
    assert shares.design_effect(residuals, np.tile(np.arange(4), 5)) == 1


def runs(random, population, lift, labelled, trials):
    """True labels, verdicts and readings of some runs; the judge adds noise to the truth."""
    number = len(population)
    truth = (random.random((trials, labelled + ROWS))[..., None] > np.cumsum(population)[:-1]).sum(
        -1
    )
    scores = random.normal(size=(*truth.shape, number)) + lift * np.eye(number)[truth]
    odds = np.exp(2 * scores)
    return truth, scores.argmax(-1), odds / odds.sum(-1, keepdims=True)


@pytest.mark.parametrize("labelled", [50, 100, 200])
@pytest.mark.parametrize(
    "population", [(0.05, 0.95), (0.3, 0.7), (0.5, 0.5), (0.05, 0.3, 0.65), (0.3, 0.2, 0.5)]
)
@pytest.mark.parametrize("lift", [0.0, 2.0])
def test_the_intervals_hold_the_truth_about_95_times_in_100(lift, population, labelled):
    """For a judge at chance and one that is right nine times in ten.

    300 trials have a standard error of 1.3 points, so the bounds are 2.5 wider than 92 and 98.
    """
    random = np.random.default_rng(labelled)
    trials, number = 300, len(population)
    truth, said, read = runs(random, population, lift, labelled, trials)
    human, judge = truth[:, :labelled], said[:, :labelled]
    table = np.zeros((trials, number, number))
    np.add.at(table, (np.arange(trials)[:, None], human, judge), 1.0)
    rest = (said[:, labelled:, None] == np.arange(number)).sum(1).astype(float)
    values, lows, highs = shares.rogan_gladen(table, rest)
    for place, share in enumerate(population):
        given = (human == place).astype(float)
        value, low, high = shares.powered_share(
            given, read[:, :labelled, place], read[:, labelled:, place]
        )
        told = np.isfinite(value)
        assert told.mean() > 0.88  # of 50 rows, none has a label of 5 % in 8 trials of 100
        assert 0.895 <= ((low <= share) & (share <= high))[told].mean() <= 1
        low, high = lows[:, place], highs[:, place]
        told = np.isfinite(values[:, place]) & np.isfinite(high)
        right = (low <= share) & (share <= high)
        assert (told & ~right).mean() <= 0.105
        if lift:
            assert right[told].mean() >= 0.895
        else:
            assert told.mean() < 0.2  # it is refused, as it should be


def test_two_labels_are_refused_or_told_together():
    random = np.random.default_rng(3)
    table = random.integers(0, 9, size=(400, 2, 2)) + 1.0
    _, low, high = shares.rogan_gladen(table, np.tile([300.0, 100.0], (400, 1)))
    assert (np.isinf(low[:, 0]) == np.isinf(low[:, 1])).all()
    told = np.isfinite(low[:, 0])
    assert low[told, 0] == pytest.approx(1 - high[told, 1])


def test_the_interval_to_expect_is_what_more_labels_give():
    random = np.random.default_rng(2)
    truth, said, read = runs(random, (0.3, 0.7), 2.0, 200, 200)
    widths = {}
    for labelled, more in ((100, 100), (200, 0)):
        given = (truth[:, :labelled] == 0).astype(float)
        _, low, high = shares.powered_share(
            given, read[:, :labelled, 0], read[:, labelled:, 0], more=more
        )
        table = np.zeros((len(truth), 2, 2))
        np.add.at(
            table, (np.arange(len(truth))[:, None], truth[:, :labelled], said[:, :labelled]), 1.0
        )
        rest = (said[:, labelled:, None] == np.arange(2)).sum(1).astype(float)
        _, lows, highs = shares.rogan_gladen(table, rest, more=more)
        widths[more] = [(high - low).mean(), np.median((highs - lows)[:, 0])]
    assert widths[100] == pytest.approx(widths[0], rel=0.08)
