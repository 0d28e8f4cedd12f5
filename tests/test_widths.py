"""The interval to expect with more labels, against a bootstrap of that size."""

import numpy as np
import pytest

from localjudge.statistics.figures import Figure
from localjudge.statistics.judging import judge_figures
from localjudge.statistics.widths import expected_width, half_width


def test_the_width_is_that_of_a_bootstrap_of_more_rows():
    random = np.random.default_rng(0)
    human = random.integers(2, size=150)
    judge = np.where(random.random(150) < 0.8, human, 1 - human)
    figure = judge_figures(human, judge, ["a", "b"])["kappa"]
    drawn = random.integers(150, size=(2000, 450))
    given, said = human[drawn], judge[drawn]
    agreed, p, q = (given == said).mean(1), given.mean(1), said.mean(1)
    chance = p * q + (1 - p) * (1 - q)
    low, high = np.quantile((agreed - chance) / (1 - chance), [0.025, 0.975])
    assert expected_width(figure, 150, 300) == pytest.approx((high - low) / 2, rel=0.1)


def test_four_times_the_labels_halve_the_width():
    figure = Figure(0.5, 0.4, 0.6)
    assert half_width(figure) == pytest.approx(0.1)
    assert expected_width(figure, 50, 150) == pytest.approx(0.05)


def test_no_interval_has_no_width():
    assert expected_width(Figure(None, reason="no rows"), 50, 10) is None
    with pytest.raises(ValueError, match="no width from 0 labels"):
        expected_width(Figure(0.5, 0.4, 0.6), 0, 10)
