"""Is a sample random? Tests of the tests."""

from itertools import combinations

import numpy as np
import pytest

from localjudge.statistics.sampling import block_p, difference_p


def test_random_samples_are_seldom_suspected():
    random = np.random.default_rng(0)
    found = []
    for seed in range(60):
        rows = np.eye(3)[random.integers(3, size=400)]
        found.append(difference_p(rows[:80], rows[80:], seed=seed))
    assert np.mean(np.array(found) < 0.05) < 0.15
    assert 0.35 < np.mean(found) < 0.65


def test_rows_that_were_picked_by_the_verdict_are_found_out():
    rows = np.eye(2)[np.arange(400) % 2]
    picked = np.argsort(rows[:, 0])[:80]
    assert difference_p(rows[picked], np.delete(rows, picked, axis=0)) == 0.001


def test_the_same_seed_gives_the_same_p():
    rows = np.random.default_rng(1).random((300, 1))
    one, same, other = (difference_p(rows[:50], rows[50:], seed=seed) for seed in (3, 3, 4))
    assert one == same != other


def test_rows_that_are_all_alike_tell_nothing():
    assert difference_p(np.ones((5, 1)), np.ones((9, 1))) is None
    assert difference_p(np.ones((5, 1)), np.ones((0, 1))) is None


@pytest.mark.parametrize("reach", [3, 4, 6, 8])
def test_the_chance_of_a_block_is_that_of_all_ways_counted(reach):
    ways = [max(each) - min(each) + 1 for each in combinations(range(9), 3)]
    places = np.array([0, 1, reach - 1])
    assert block_p(places, 9) == pytest.approx(np.mean(np.array(ways) <= reach))


def test_one_row_and_a_whole_file_are_no_block():
    assert block_p(np.array([3]), 100) == 1
    assert block_p(np.arange(50), 50) == 1
    assert block_p(np.arange(50), 100_000) < 1e-9
