"""Fits held to scikit-learn and scipy, and to what was put into simulated data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from localjudge.cross_validation import folds
from localjudge.fitting import fit_ordinal, fit_scaled, fit_softmax


def simulated(rows, width, classes, seed=0):
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, width))
    logits = features @ random.normal(size=(width, classes))
    return features, (logits + random.gumbel(size=logits.shape)).argmax(axis=1)


@pytest.mark.parametrize("penalty", [0.1, 1.0, 100.0])
@pytest.mark.parametrize(("rows", "width", "classes"), [(200, 5, 3), (60, 100, 4)])
def test_softmax_regression_is_that_of_scikit_learn(rows, width, classes, penalty):
    features, labels = simulated(rows, width, classes)
    ours = fit_softmax(features, labels, classes, penalty)
    theirs = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=10_000).fit(features, labels)
    assert np.allclose(ours.weights.T, theirs.coef_, atol=1e-2)
    found = np.exp(ours.log_probabilities(features))
    assert np.allclose(found, theirs.predict_proba(features), atol=1e-3)


def test_a_label_that_does_not_occur_is_improbable_but_possible():
    features, labels = simulated(100, 2, 2)
    log_probs = fit_softmax(features, labels, 3, 1.0).log_probabilities(features)
    assert np.isfinite(log_probs).all()
    assert np.exp(log_probs[:, 2]).max() < 0.02


def test_one_factor_for_all_undoes_overconfidence():
    random = np.random.default_rng(0)
    true = random.normal(size=(4000, 3))
    labels = (true + random.gumbel(size=true.shape)).argmax(axis=1)
    scaled = fit_scaled(4 * true, labels, 1e-3, bias=False)
    assert np.allclose(scaled.weights, np.eye(3) / 4, atol=0.03)
    assert not scaled.bias.any()
    shifted = fit_scaled(4 * true + [0.0, 4.0, -4.0], labels, 1e-3, bias=True)
    assert np.allclose(shifted.bias - shifted.bias[0], [0, -1, 1], atol=0.15)


def test_the_factor_never_turns_the_order_round():
    _, labels = simulated(200, 2, 2)
    logits = np.log(np.where(labels[:, None] == np.arange(2), 0.1, 0.9))  # always the wrong one
    assert fit_scaled(logits, labels, 0.1, bias=False).weights[0, 0] >= 0


def test_proportional_odds_maximise_their_likelihood():
    features, labels = simulated(300, 3, 4)
    fit = fit_ordinal(features, labels, 4, 2.0)
    assert (np.diff(fit.thresholds) > 0).all()

    def loss(parameters):
        weights, thresholds = parameters[:3], np.sort(parameters[3:])
        edges = np.concatenate([[-np.inf], thresholds, [np.inf]])
        below = 1 / (1 + np.exp(-(edges - (features @ weights)[:, None])))
        chance = np.diff(below, axis=1)[np.arange(len(labels)), labels]
        return -np.log(chance.clip(1e-12)).sum() + weights @ weights

    patient = {"maxiter": 20_000, "maxfev": 20_000, "xatol": 1e-6, "fatol": 1e-9}
    best = minimize(loss, [0, 0, 0, -1, 0, 1], method="Nelder-Mead", options=patient)
    assert loss(np.array([*fit.weights, *fit.thresholds])) == pytest.approx(best.fun, abs=0.01)
    assert np.allclose(fit.weights, best.x[:3], atol=0.02)
    found = np.exp(fit.log_probabilities(features))
    assert np.allclose(found.sum(axis=1), 1)


def test_far_out_on_the_scale_probabilities_stay_finite():
    fit = fit_ordinal(np.array([[-1.0], [0.0], [1.0]] * 20), np.array([0, 1, 2] * 20), 3, 1.0)
    log_probs = fit.log_probabilities(np.array([[-1e4], [0.0], [1e4]]))
    assert np.isfinite(log_probs[1]).all()
    assert log_probs[0].argmax() == 0 and log_probs[2].argmax() == 2
    assert not np.isnan(log_probs).any()


@settings(deadline=None)
@given(st.integers(2, 60), st.integers(1, 12), st.integers(1, 4), st.integers(0, 99))
def test_folds_part_no_cluster_and_judge_each_row_once(rows, units, classes, seed):
    random = np.random.default_rng(seed)
    clusters = np.unique(random.integers(units, size=rows), return_inverse=True)[1]
    labels = random.integers(classes, size=rows)
    judged = []
    for known, out in folds(labels, clusters, 5, seed):
        assert not {*clusters[known]} & {*clusters[out]}
        assert sorted([*known, *out]) == list(range(rows))
        judged += [*out]
    assert sorted(judged) == list(range(rows))


def test_folds_hold_like_shares_of_a_rare_label():
    labels = np.array([1] * 10 + [0] * 190)
    parts = [labels[out] for _, out in folds(labels, np.arange(200), 5, 0)]
    assert [part.sum() for part in parts] == [2] * 5
    assert all(39 <= len(part) <= 41 for part in parts)
