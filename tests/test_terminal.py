from pathlib import Path

from localjudge.run import RunResult
from localjudge.store import Tally
from localjudge.terminal import print_result


def summary(capsys, **facts) -> str:
    parts = {"values": {"A": 3, "tie": 1}, "confidence": 0.5, "answer_mass": 0.9}
    parts |= {"order_flips": None, "label_flips": None, "cut": 0, "shortened": 0} | facts
    tally = Tally("pairwise", {"ok": 4, "truncated": 1}, **parts)
    print_result(RunResult(Path("out"), 5, (tally,), 5, 2.0))
    return capsys.readouterr().out


def test_the_summary_says_what_hung_on_an_order_and_what_was_cut(capsys):
    shown = summary(capsys, order_flips=1, label_flips=2, cut=3, shortened=2)
    assert "  order flips 1 (25%)" in shown
    assert "  label flips 2 (50%)" in shown
    assert "  cut         3 explanations ended at their budget" in shown
    assert "  shortened   2 rows had an input cut to fit the model" in shown


def test_the_summary_does_not_speak_of_what_was_not_asked(capsys):
    shown = summary(capsys)
    assert "flips" not in shown and "cut  " not in shown and "shortened" not in shown
    assert "A 3 (75%)" in shown
