"""Figures of probabilities, against scikit-learn and a table worked by hand."""

import numpy as np
import pytest
from sklearn import metrics as sk

from localjudge.statistics.probabilities import ranking, scoring


def values_of(statistic, rows):
    return {name: value for name, [value] in statistic(np.ones((1, rows))).items()}


def random_rows(seed, labels=3):
    random = np.random.default_rng(seed)
    rows = int(random.integers(12, 60))
    human = random.integers(labels, size=rows)
    human[:labels] = range(labels)
    chances = random.dirichlet(np.ones(labels), size=rows)
    chances[rows // 2 :] = chances[0]  # ties
    return human, chances


@pytest.mark.parametrize("seed", range(10))
def test_ranking_agrees_with_scikit_learn(seed):
    human, chances = random_rows(seed)
    ours = values_of(ranking(human, chances, "abc"), len(human))
    for place, label in enumerate("abc"):
        auroc = sk.roc_auc_score(human == place, chances[:, place])
        assert ours[f"auroc:{label}"] == pytest.approx(auroc)
        precision = sk.average_precision_score(human == place, chances[:, place])
        assert ours[f"average_precision:{label}"] == pytest.approx(precision)
    macro = sk.roc_auc_score(human, chances, multi_class="ovr", average="macro")
    assert ours["auroc"] == pytest.approx(macro)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("labels", [2, 3])
def test_scores_agree_with_scikit_learn(seed, labels):
    human, chances = random_rows(seed, labels)
    ours = values_of(scoring(human, chances.argmax(1), chances), len(human))
    names = list(range(labels))
    brier = sk.brier_score_loss(np.eye(labels)[human], chances, scale_by_half=True)
    assert ours["brier_score"] == pytest.approx(brier)
    assert ours["log_loss"] == pytest.approx(sk.log_loss(human, chances, labels=names))


@pytest.mark.parametrize("seed", range(3))
def test_weights_stand_for_repeated_rows(seed):
    human, chances = random_rows(seed)
    weights = np.random.default_rng(seed).integers(3, size=(4, len(human)))
    weights[0] *= human == 1  # one class only
    for statistic in (
        lambda rows: ranking(human[rows], chances[rows], "abc"),
        lambda rows: scoring(human[rows], chances[rows].argmax(1), chances[rows]),
    ):
        weighted = statistic(np.arange(len(human)))(weights.astype(float))
        for place, times in enumerate(weights):
            rows = np.repeat(np.arange(len(human)), times)
            for name, value in values_of(statistic(rows), len(rows)).items():
                assert weighted[name][place] == pytest.approx(value, nan_ok=True), name


def test_calibration_error_worked_by_hand():
    """Four rows at 0.95, three right: apart by 0.2. One at 0.55, wrong: apart by 0.55.

    0.8 * 0.2 + 0.2 * 0.55 = 0.27. A probability of 1 is in the last bin with 0.95.
    """
    sure = np.array([0.95, 0.95, 0.9, 1.0, 0.55])
    chances = np.stack([sure, 1 - sure], 1)
    judge, human = np.zeros(5, dtype=int), np.array([0, 0, 0, 1, 1])
    ours = values_of(scoring(human, judge, chances), 5)
    assert ours["expected_calibration_error"] == pytest.approx(0.27)


def test_a_certain_and_wrong_answer_has_a_finite_log_loss():
    ours = values_of(scoring(np.array([1]), np.array([0]), np.array([[1.0, 0.0]])), 1)
    assert ours["log_loss"] == pytest.approx(-np.log(np.finfo(float).eps))
    assert ours["brier_score"] == 1


def test_one_class_only_cannot_be_ranked():
    ours = values_of(ranking(np.zeros(3, dtype=int), np.full((3, 2), 0.5), "ab"), 3)
    assert all(np.isnan(value) for value in ours.values())
