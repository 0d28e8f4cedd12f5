"""Each sentence follows its rule, on tables small enough to work out by hand."""

import pytest

from localjudge.agreement import Agreement, Matches
from localjudge.disagreements import Bin, wilson
from localjudge.findings import ends, faults, number, use
from localjudge.statistics.figures import Figure
from localjudge.statistics.raters import Ceiling

MINUS = "\N{MINUS SIGN}"


def figure(value, low=None, high=None, reason=None):
    return Figure(value, low, high, "bca" if low is not None else None, reason)


def agreement(kappa, confusion=((6, 4), (3, 7)), *, scale=False, people=None, judge=None, **more):
    labels = ("1", "2", "3")[: len(confusion)] if scale else ("right", "wrong")
    rows = sum(map(sum, confusion))
    right = sum(confusion[place][place] for place in range(len(confusion))) / max(1, rows)
    figures = {
        "kappa_quadratic" if scale else "kappa": kappa,
        "accuracy": figure(right, right - 0.1, right + 0.1),
        "accuracy_failures_wrong": figure(right),
    } | more
    ceiling = None
    if people is not None:
        ceiling = Ceiling(rows, {"kappa": people}, {"kappa": judge}, {})
    matches = Matches(rows, 0, 0, 0, 0, 0)
    statuses = {"ok": rows}
    return Agreement("check", labels, scale, matches, statuses, figures, {}, confusion, ceiling)


def test_no_labels_leave_it_unknown():
    assert use(None).tag == "not known"


@pytest.mark.parametrize(
    ("kappa", "tag", "said"),
    [
        (figure(0.02, -0.1, 0.14), "no better than chance", "Not on this evidence"),
        (figure(0.1, 0.0, 0.2), "no better than chance", "no better than chance (kappa 0.10"),
        (figure(-0.3, -0.5, -0.1), "no better than chance", "less often than chance"),
        (figure(0.4, 0.1, 0.6), "better than chance", "each row has one rater"),
        (figure(None, reason="one class only"), "not known", "one class only"),
        (figure(0.4, reason="undefined in 300 of 2000"), "not known", "undefined in 300"),
    ],
)
def test_the_interval_of_kappa_decides(kappa, tag, said):
    found = use(agreement(kappa))
    assert found.tag == tag
    assert said in found.sentence


def test_one_answer_for_all_rows_is_no_better_than_chance():
    found = use(agreement(figure(0.0, reason="no spread"), ((10, 0), (10, 0))))
    assert found.tag == "no better than chance"
    assert "“right”" in found.sentence


@pytest.mark.parametrize(("rows", "tag"), [(2, "not known"), (40, "better than chance")])
def test_agreement_on_all_rows_is_held_to_the_rule_of_three(rows, tag):
    """Of 2 + 2 rows up to 3/4 may differ, more than the half that would by chance."""
    found = use(agreement(figure(1.0, reason="no spread"), ((rows, 0), (0, rows))))
    assert found.tag == tag
    assert "75% of rows" in found.sentence if rows == 2 else "4% of rows" in found.sentence


@pytest.mark.parametrize(
    ("people", "judge", "tag", "said"),
    [
        (figure(0.8, 0.7, 0.9), figure(0.5, 0.3, 0.65), "below people", "less than they agree"),
        (figure(0.8, 0.4, 0.9), figure(0.5, 0.3, 0.65), "better than chance", "do not show it"),
        (figure(0.1, -0.2, 0.3), figure(0.5, 0.3, 0.65), "not known", "People do not agree"),
        (figure(None, reason="one class"), figure(0.5), "better than chance", "cannot be compared"),
        (figure(1.0, reason="no spread"), figure(0.5), "better than chance", "not compared"),
    ],
)
def test_people_among_themselves_are_the_most_to_expect(people, judge, tag, said):
    found = use(agreement(figure(0.5, 0.3, 0.7), people=people, judge=judge))
    assert found.tag == tag
    assert said in found.sentence


def test_faults_name_shares_mistakes_and_the_constant_answer():
    found = " ".join(faults(agreement(figure(0.1, -0.2, 0.3), ((9, 1), (8, 2))), []))
    assert "It answers “right” too often: on 17 of 20 rows, where people do on 10." in found
    assert "where people say “wrong”, it says “right”, on 8 of 10 such rows" in found
    assert "answering “right” every time would be right on 50%" in found


def test_grades_that_are_shifted_are_said_to_be():
    """Of 30 rows 10 are a step too high: 0.33 on average, give or take 1.96 * 0.479 / root 30."""
    shifted = ((5, 5, 0), (0, 5, 5), (0, 0, 10))
    found = " ".join(faults(agreement(figure(0.5, 0.2, 0.7), shifted, scale=True), []))
    assert "higher than people's, by 0.33 steps on average (95% interval 0.16 to 0.50)" in found
    even = ((5, 5, 0), (5, 5, 0), (0, 0, 10))
    assert "steps" not in " ".join(faults(agreement(figure(0.5), even, scale=True), []))


def test_confidence_is_held_to_the_interval_of_accuracy():
    def said(confidence):
        bins = [Bin(0.0, 1.0, 20, confidence, 0.65, (0.4, 0.8))]
        return " ".join(faults(agreement(figure(0.3, 0.1, 0.5), ((6, 4), (3, 7))), bins))

    assert "too sure of itself: its confidence is 90% on average" in said(0.9)
    assert "less sure than it might be" in said(0.5)
    assert "sure" not in said(0.7)


@pytest.mark.parametrize(
    ("auroc", "said"),
    [
        (figure(0.2, 0.1, 0.4), "the wrong way round"),
        (figure(0.5, 0.4, 0.6), "no better than chance"),
        (figure(0.8, 0.7, 0.9), "another threshold"),
    ],
)
def test_the_ranking_is_told_from_the_answers(auroc, said):
    assert said in " ".join(faults(agreement(figure(0.0, -0.1, 0.1), auroc=auroc), []))


def test_numbers_have_a_true_minus_and_ends_keep_their_side_of_0():
    assert number(-0.25) == f"{MINUS}0.25"
    assert number(-0.001) == "0.00"
    assert ends(figure(-0.1, -0.23, -0.003)) == f"{MINUS}0.230 to {MINUS}0.003"


def test_wilson_is_as_published():
    """81 of 263: 0.2553 to 0.3662 (Newcombe, Statistics in Medicine 17 (1998), table I)."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 5)[0] == pytest.approx(0.0, abs=1e-12)
    assert wilson(5, 5)[1] == pytest.approx(1.0)
