"""Do some rows look like a random sample of all?"""

import numpy as np
import pytest

from localjudge.statistics.sampling import block_p, difference_p


def test_rows_that_differ_are_told_from_a_random_sample():
    random = np.random.default_rng(0)
    rows = random.random((300, 2))
    assert difference_p(rows[:50] + 0.2, rows[50:]) == 0.001
    assert difference_p(rows[:50], rows[50:]) > 0.05


def test_random_samples_are_seldom_suspected():
    random = np.random.default_rng(1)
    found = [
        difference_p(random.random((20, 1)), random.random((80, 1)), seed=seed)
        for seed in range(40)
    ]
    assert sum(p < 0.05 for p in found) <= 6
    assert sum(p < 0.5 for p in found) > 10


def test_the_same_seed_gives_the_same_figure():
    rows = np.random.default_rng(2).random((60, 1))
    assert difference_p(rows[:20], rows[20:], seed=5) == difference_p(rows[:20], rows[20:], seed=5)


def test_nothing_to_compare_is_no_figure():
    assert difference_p(np.ones((3, 1)), np.zeros((0, 1))) is None
    assert difference_p(np.ones((3, 1)), np.ones((4, 1))) is None


@pytest.mark.parametrize(
    ("places", "total", "p"),
    # Of the 10 pairs of 5 rows, 4 are neighbours, 7 at most two apart; of all triples of 4, 2.
    [([1, 2], 5, 0.4), ([0, 2], 5, 0.7), ([0, 4], 5, 1.0), ([0, 1, 2], 4, 0.5), ([3], 9, 1.0)],
)
def test_how_often_a_random_sample_stands_as_close_together(places, total, p):
    assert block_p(np.array(places), total) == pytest.approx(p)
