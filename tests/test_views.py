"""What `show`, `diff` and `status` print."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from localjudge.differences import Change, Differences
from localjudge.progress import Progress, RunStatus
from localjudge.records import Status, Verdict
from localjudge.views import print_differences, print_status, print_verdicts

GOOD = Verdict(
    "r1",
    "[bold]tone[/bold]",
    Status.OK,
    value="[red]good[/red]",
    probabilities={"[red]good[/red]": 0.75, "bad": 0.25},
    answer_mass=0.5,
    explanation="It says [b]thanks[/b].",
)
FAILED = Verdict("\x1b[2Jr2", "tone", Status.ENGINE_ERROR, error="no [i]memory[/i]\nleft")


def test_verdicts_are_shown_with_probabilities_and_explanation(capsys):
    print_verdicts([GOOD, FAILED, GOOD], 2)
    header, first, second, more = capsys.readouterr().out.splitlines()
    for word in ("id", "metric", "verdict", "probabilities", "mass", "explanation"):
        assert word in header
    assert "[bold]tone[/bold]" in first and "[red]good[/red] 0.75, bad 0.25" in first
    assert "0.5 " in first and "It says [b]thanks[/b]." in first
    assert "engine_error" in second and "no [i]memory[/i] left" in second
    assert "\x1b" not in second
    assert more == "... and 1 more"


def test_in_a_narrow_terminal_explanations_keep_their_room(capsys, monkeypatch):
    monkeypatch.setattr("localjudge.views.console", lambda: Console(width=80, highlight=False))
    wordy = replace(GOOD, id="customer-00001", explanation="It is a long story. " * 4)
    print_verdicts([wordy, FAILED], 5)
    shown = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= 80
    first = [line.startswith("customer-00001 ") for line in shown].index(True)
    assert "[red]good[/red] 0.75" in shown[first] and "It is a long" in shown[first]
    assert shown[first + 1].startswith("[bold]tone[/bold] ") and "bad 0.25" in shown[first + 1]
    assert "mass 0.5" in shown[first + 2]


def test_without_explanations_there_is_no_column_for_them(capsys):
    print_verdicts([Verdict("a", "tone", Status.OK, value="x")], 5)
    assert "explanation" not in capsys.readouterr().out
    print_verdicts([], 5)
    assert capsys.readouterr().out == "no verdict fits\n"


def test_differences_are_settings_then_counts_then_rows(capsys):
    other = Verdict("r1", "tone", Status.OK, value="bad", probabilities={"good": 0.1, "bad": 0.9})
    counts = {"[b]m": Counter({"same": 7, "changed": 3})}
    print_differences(
        Differences((("options.explain", "false", "[b]true"),), counts, (Change(GOOD, other),))
    )
    shown = capsys.readouterr().out
    places = [shown.index(part) for part in ("options.explain", "[b]true", "[b]m", "same", "r1")]
    assert places == sorted(places)
    assert "  changed            3 (30%)" in shown
    assert "[red]good[/red]  0.50" in shown.replace("   ", "  ")
    assert "0.80" in shown
    assert "... and 2 more" in shown
    print_differences(Differences((), {}, ()))
    assert capsys.readouterr().out == "the settings are the same\n"


@pytest.mark.parametrize(
    ("status", "says", "not_says"),
    [
        (
            RunStatus("judging", Progress(50, 100, 20, 2, 10.0, 10, 900), 997.0, "process 7"),
            [
                "judging, process 7",
                "50 of 100 (50%)",
                "20 judged: 18 ok, 2 failed; 10 from the cache",
                "3.0 rows/s, 90.0 tokens/s",
                "time left   17 s",
                "3 s ago",
            ],
            ["same command"],
        ),
        (
            RunStatus("stopped", Progress(0, 9, 0, 0, 0.0), 0.0, None, "disk [b]full"),
            ["stopped", "0 of 9", "disk [b]full", "the same command goes on"],
            ["rows/s", "time left", "cache"],
        ),
        (RunStatus("loading", Progress(0, 9, 0, 0, 0.0), 0.0, "process 7"), ["loading the"], []),
    ],
)
def test_the_status_says_how_far_a_run_is(capsys, monkeypatch, status, says, not_says):
    monkeypatch.setattr("time.time", lambda: 1000.0)
    print_status(status)
    shown = capsys.readouterr().out
    for part in says:
        assert part in shown
    for part in not_says:
        assert part not in shown
