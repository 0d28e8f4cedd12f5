from pathlib import Path

from localjudge.progress import Progress
from localjudge.run import RunResult
from localjudge.store import Tally
from localjudge.terminal import print_result, progress_bar


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


def test_what_came_from_the_cache_is_said(capsys):
    print_result(RunResult(Path("out"), 5, (), 0, 0.0, reused=5))
    shown = capsys.readouterr().out
    assert "5 verdicts were taken from the cache" in shown
    assert "nothing left" not in shown
    print_result(RunResult(Path("out"), 5, (), 0, 0.0))
    shown = capsys.readouterr().out
    assert "nothing left" in shown and "cache" not in shown


def test_progress_without_a_terminal_is_lines_now_and_then_which_are_logged_too(capsys):
    logged = []
    with progress_bar(logged.append) as report:
        for done in (0, 50, 60, 100):
            report(Progress(done, 100, done, done // 50, done / 10, tokens=done * 700))
    shown = capsys.readouterr().err.splitlines()
    assert shown == logged
    assert shown == [
        "0/100 verdicts, judging the first rows",
        "100/100 verdicts, 10.0 rows/s, 7,000 tokens/s, 0 s left, 2 failed",
    ]
