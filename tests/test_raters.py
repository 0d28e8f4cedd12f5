"""Several raters of one row, on tables small enough to read."""

import numpy as np

from localjudge.statistics.raters import Ratings, ceiling, consensus, tally, without_each

ROWS = np.array([0, 0, 0, 1, 1, 2])
GIVEN = np.array([0, 0, 1, 0, 1, 1])


def test_a_tally_counts_each_label_of_each_row():
    assert tally(ROWS, GIVEN, (4, 2)).tolist() == [[2, 1], [1, 1], [0, 1], [0, 0]]


def test_raters_settle_on_the_most_frequent_label_or_on_none():
    assert consensus(tally(ROWS, GIVEN, (4, 2))).tolist() == [0, -1, 1, -1]


def test_raters_of_a_scale_settle_on_the_mean_rounded_half_up():
    """Row 0: 3, 4, 4 make 3.67; row 1: 2 and 3 make 2.5, so 3; row 2: nobody."""
    counts = np.array([[0.0, 1.0, 2.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert consensus(counts, np.array([2.0, 3.0, 4.0])).tolist() == [2, 1, -1]


def test_without_each_rater_the_others_settle():
    """Row 0 without a 0: the others are split; without the 1: they say 0. Row 2 has one rater."""
    assert without_each(ROWS, GIVEN, (3, 2)).tolist() == [-1, -1, 0, 1, 0, -1]


def ratings(judge):
    judge = np.array(judge)
    names = np.array(["a", "b", "c", "a", "b", "a"])
    return Ratings(ROWS, names, GIVEN, judge[ROWS], ROWS, ["no", "yes"])


def test_only_rows_with_a_verdict_and_several_raters_count():
    found = ceiling(ratings([0, 1, 1]), named=True, resamples=200)
    assert found.rows == 2
    # Of three ratings with a consensus of the others, all differ from it; the judge says 0, 1, 1.
    assert found.humans["accuracy"].value == 0
    assert found.judge["accuracy"].value == 2 / 3
    assert found.raters.keys() == {"a", "b", "c"}
    assert ceiling(ratings([-1, 1, 1]), resamples=200).rows == 1
    assert ceiling(ratings([-1, -1, 1]), resamples=200) is None
