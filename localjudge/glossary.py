"""What each figure of agreement says, for a reader who has not met it."""

from __future__ import annotations

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "coverage": "Share of the labelled rows that have a verdict.",
    "accuracy": "Share of rows on which judge and people say the same.",
    "accuracy_failures_wrong": "The same over all labelled rows; a row without a verdict is wrong.",
    "balanced_accuracy": "Mean, over the labels that people give, of the share found.",
    "macro_f1": "Mean F1 over the labels; F1 joins precision and recall.",
    "kappa": "Agreement beyond chance (Cohen): 0 is chance, 1 is full agreement.",
    "kappa_linear": "Kappa in which a difference counts by the number of steps.",
    "kappa_quadratic": "Kappa in which a difference counts by the square of its steps.",
    "alpha_nominal": "Agreement beyond chance (Krippendorff), labels without an order.",
    "alpha_ordinal": "Agreement beyond chance (Krippendorff), grades by their order.",
    "alpha_interval": "Agreement beyond chance (Krippendorff), grades by their distance.",
    "alpha_among_raters": "Krippendorff's alpha among people.",
    "ac1": "Agreement beyond chance (Gwet), steadier where one label is rare.",
    "pearson": "Linear correlation of the grades, from -1 to 1.",
    "spearman": "Correlation of the ranks, from -1 to 1.",
    "kendall_tau_b": "Share of pairs of rows in the same order less that in the other.",
    "mean_absolute_error": "Mean distance from people's grade, in steps.",
    "auroc": "How well probabilities rank the rows: 0.5 is chance, 1 is perfect.",
    "average_precision": "Precision averaged down the ranking; chance is the label's share.",
    "brier_score": "Squared error of the probabilities: 0 is best, 1 is worst.",
    "log_loss": "Penalty for sure mistakes, in nats: 0 is best.",
    "expected_calibration_error": "Mean gap between confidence and accuracy, in ten bins.",
}
_EXPECTED = "expected_"


def title(figure: str) -> str:
    """Return the name of a figure as people read it."""
    return figure.replace("_", " ")


def meaning(figure: str) -> str:
    """Return what a figure says, in one sentence; empty if that is not known."""
    if figure not in MEANINGS and figure.startswith(_EXPECTED):
        known = MEANINGS.get(figure.removeprefix(_EXPECTED))
        return f"The same of the judge's expected grade. {known}" if known else ""
    return MEANINGS.get(figure, "")
