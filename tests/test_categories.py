"""Figures of categories, against scikit-learn, krippendorff and tables worked by hand."""

import krippendorff
import numpy as np
import pytest
from sklearn import metrics as sk

from localjudge.statistics.categories import alphas, categories, coverage, grades

ONES = np.ones((1, 1))


def values_of(statistic, rows):
    return {name: value for name, [value] in statistic(np.ones((1, rows))).items()}


def table(cells):
    """Return the two sides of a table of counts: rows human, columns judge."""
    pairs = [(h, j) for h, row in enumerate(cells) for j, n in enumerate(row) for _ in range(n)]
    return np.array(pairs).T


def random_sides(seed, labels=4):
    random = np.random.default_rng(seed)
    rows = int(random.integers(2, 60))
    human = random.integers(labels - seed % 2, size=rows)  # at times a label that nobody gives
    judge = np.where(random.random(rows) < 0.5, human, random.integers(labels, size=rows))
    return human, judge


def same(ours, theirs):
    assert ours == pytest.approx(theirs, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("seed", range(20))
def test_labels_agree_with_scikit_learn_and_krippendorff(seed):
    human, judge = random_sides(seed)
    names = "abcd"
    ours = values_of(categories(human, judge, names), len(human))
    same(ours["accuracy"], sk.accuracy_score(human, judge))
    present = np.unique(human)
    same(
        ours["balanced_accuracy"],
        sk.recall_score(human, judge, labels=present, average="macro", zero_division=0),
    )
    same(ours["macro_f1"], sk.f1_score(human, judge, average="macro"))
    same(ours["kappa"], sk.cohen_kappa_score(human, judge))
    same(ours["alpha_nominal"], krippendorff.alpha([human, judge], level_of_measurement="nominal"))
    each = sk.precision_recall_fscore_support(human, judge, labels=range(4), zero_division=np.nan)
    for place, name in enumerate(names):
        same(ours[f"precision:{name}"], each[0][place])
        same(ours[f"recall:{name}"], each[1][place])
        same(ours[f"f1:{name}"], each[2][place])


@pytest.mark.parametrize("seed", range(20))
def test_grades_agree_with_scikit_learn_and_krippendorff(seed):
    human, judge = random_sides(seed)
    grade = np.array([1.0, 2.0, 3.0, 4.0])
    ours = values_of(grades(human, judge, grade), len(human))
    for weights in ("linear", "quadratic"):
        theirs = sk.cohen_kappa_score(human, judge, labels=range(4), weights=weights)
        same(ours[f"kappa_{weights}"], theirs)
    for level in ("ordinal", "interval"):
        theirs = krippendorff.alpha([human + 1, judge + 1], level_of_measurement=level)
        same(ours[f"alpha_{level}"], theirs)


def test_a_scale_counts_its_steps_whether_used_or_not():
    """Only 2 and 4 occur: for the linear kappa they are two steps apart, and nothing changes."""
    human, judge = np.array([1, 3, 3, 1]), np.array([1, 3, 1, 1])
    whole = values_of(grades(human, judge, np.arange(1.0, 6.0)), 4)
    theirs = sk.cohen_kappa_score(human, judge, labels=range(5), weights="linear")
    assert whole["kappa_linear"] == pytest.approx(theirs)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
def test_alpha_of_many_raters_with_gaps_agrees_with_krippendorff(seed, level):
    counts = np.random.default_rng(seed).multinomial(3, [0.5, 0.2, 0.2, 0.1], size=30)
    counts[::4] //= 2  # some rows have one rating or none
    grade = np.array([1.0, 2.0, 3.0, 5.0])
    [[ours]] = alphas(counts.astype(float), [level], grade)(np.ones((1, 30))).values()
    theirs = krippendorff.alpha(
        value_counts=counts, value_domain=list(grade), level_of_measurement=level
    )
    same(ours, theirs)


def test_weights_stand_for_repeated_rows():
    random = np.random.default_rng(1)
    human, judge = random_sides(3)
    weights = random.integers(3, size=(5, len(human)))
    grade = np.array([1.0, 2.0, 3.0, 4.0])
    for statistic in (
        lambda h, j: categories(h, j, "abcd"),
        lambda h, j: grades(h, j, grade),
    ):
        weighted = statistic(human, judge)(weights.astype(float))
        for place, times in enumerate(weights):
            rows = np.repeat(np.arange(len(human)), times)
            repeated = values_of(statistic(human[rows], judge[rows]), len(rows))
            for name, value in repeated.items():
                same(weighted[name][place], value)


def test_kappa_and_ac1_of_a_table_worked_by_hand():
    """20 rows: 9 both yes, 3 human yes, judge no; 2 human no, judge yes; 6 both no.

    Observed (9 + 6) / 20 = 0.75. Cohen: 12/20 * 11/20 + 8/20 * 9/20 = 0.51 by chance, so
    kappa = 0.24 / 0.49. Gwet: the mean share of yes is (12 + 11) / 40 = 0.575, so by chance
    2 * 0.575 * 0.425 / (2 - 1) = 0.48875, and AC1 = 0.26125 / 0.51125.
    """
    human, judge = table([[9, 3], [2, 6]])
    ours = values_of(categories(human, judge, ["yes", "no"]), 20)
    assert ours["accuracy"] == 0.75
    assert ours["kappa"] == pytest.approx(0.24 / 0.49)
    assert ours["ac1"] == pytest.approx(0.26125 / 0.51125)


def test_ac1_of_three_labels_worked_by_hand():
    """10 rows, 7 of them on the diagonal; the mean shares are 0.5, 0.35 and 0.15.

    By chance (0.25 + 0.2275 + 0.1275) / (3 - 1) = 0.3025, and AC1 = 0.3975 / 0.6975.
    """
    human, judge = table([[4, 1, 0], [1, 2, 0], [0, 1, 1]])
    ours = values_of(categories(human, judge, "abc"), 10)
    assert ours["ac1"] == pytest.approx(0.3975 / 0.6975)


def test_alpha_worked_by_hand():
    """Krippendorff's ordinal distance, 4 rows: (1,1) (2,2) (3,3) (1,3); n = 3, 2, 3 of 8 ratings.

    The squared distance from 1 to 3 is (3/2 + 2 + 3/2)^2 = 25, from 1 to 2 and from 2 to 3
    (3/2 + 2/2)^2 = 6.25. Observed: 2 * 25 / 8 = 6.25. Expected:
    2 * (9 * 25 + 6 * 6.25 + 6 * 6.25) / (8 * 7) = 600 / 56. Alpha = 1 - 6.25 * 56 / 600 = 0.41667.
    """
    ours = values_of(grades(np.array([0, 1, 2, 0]), np.array([0, 1, 2, 2]), np.arange(1.0, 4)), 4)
    assert ours["alpha_ordinal"] == pytest.approx(1 - 6.25 * 56 / 600)


def test_kappa_of_one_class_is_undefined_and_of_one_exception_zero():
    same_side = np.zeros(4, dtype=int)
    ours = values_of(categories(same_side, same_side, ["yes", "no"]), 4)
    assert np.isnan(ours["kappa"]) and np.isnan(ours["alpha_nominal"])
    assert (ours["accuracy"], ours["ac1"]) == (1, 1)
    assert np.isnan(ours["recall:no"]) and np.isnan(ours["precision:no"])
    human = np.array([0] * 9 + [1])
    ours = values_of(categories(human, np.zeros(10, dtype=int), ["yes", "no"]), 10)
    assert (ours["kappa"], ours["accuracy"]) == (0, 0.9)
    graded = values_of(grades(same_side, same_side, np.arange(1.0, 6)), 4)
    assert all(np.isnan(value) for value in graded.values())


def test_failures_lower_the_coverage_and_count_as_wrong_in_one_figure():
    judged = np.array([1.0] * 80 + [0.0] * 20)
    ours = values_of(coverage(judged, judged), 100)
    assert ours == {"coverage": 0.8, "accuracy_failures_wrong": 0.8}
