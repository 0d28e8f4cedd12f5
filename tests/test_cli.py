"""The commands, run as a person runs them: what they print, and how they exit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from localjudge.cli import app


@pytest.fixture
def run(tmp_path):
    """Run a command in a folder of its own; returns the finished process."""

    def run(*arguments, code=0, **settings):
        if arguments[0] == "run" and "--engine" not in arguments:
            arguments += ("--engine", "transformers")  # the one that is always there
        done = subprocess.run(
            [sys.executable, "-m", "localjudge", *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=os.environ | {"LOCALJUDGE_HOME": str(tmp_path / "home")},
            timeout=300,
            **settings,
        )
        assert done.returncode == code, done.stderr + done.stdout
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f'{{"id": {i}, "output": "text {i}"}}\n' for i in range(8)))
    return file


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_run_and_show(run, rows, toy, tmp_path):
    done = run("run", "toxicity", "--data", rows, "--model", toy, "--out", "out")
    assert "8 verdicts" in done.stdout
    assert "out/verdicts.parquet" in done.stdout
    verdicts = read(tmp_path / "out/verdicts.jsonl")
    for verdict in verdicts:
        assert verdict["value"] in ("toxic", "non-toxic")
        assert sum(verdict["probabilities"].values()) == pytest.approx(1)
    shown = run("show", "out", "--limit", "3").stdout
    assert "toxic" in shown
    assert "5 more" in shown
    again = run("run", "toxicity", "--data", rows, "--model", toy, "--out", "out")
    assert "nothing left to judge" in again.stdout


def test_a_run_is_logged_observed_filtered_compared_and_joined(run, rows, toy, tmp_path):
    options = ("--data", rows, "--model", toy, "--cache", "cache", "--log-file", "run.log")
    run("run", "toxicity", *options, "--out", "a")
    again = run("run", "toxicity", *options, "--out", "b", "--max-failures", 0)
    assert "8 verdicts were taken from the cache" in again.stdout
    log = (tmp_path / "run.log").read_text()
    assert log.count(" started") == log.count(" ended") == 2
    assert log.count("8/8 verdicts") == 2
    assert run("status", "b").stdout.startswith("finished\n  done        8 of 8 (100%)\n")
    verdicts = read(tmp_path / "a/verdicts.jsonl")
    assert verdicts == read(tmp_path / "b/verdicts.jsonl")
    label = verdicts[0]["value"]
    shown = run("show", "a", "--label", label, "--status", "ok", "--below", "1").stdout
    assert len(shown.splitlines()) == 1 + sum(v["value"] == label for v in verdicts)
    assert run("show", "a", "--below", "0").stdout == "no verdict fits\n"
    same = run("diff", "a", "b").stdout
    assert "the settings are the same" in same and "same               8 (100%)" in same
    run("run", "toxicity", *options, "--out", "c", "--decoding", "guided", "--no-retry-failed")
    assert "options.decoding" in run("diff", "a", "c").stdout
    joined = run("export", "a", "--join", rows, "--format", "jsonl").stdout.strip()
    assert joined == "a/joined.jsonl"
    assert [row["output"] for row in read(tmp_path / joined)] == [f"text {i}" for i in range(8)]


def test_guided_decoding(run, rows, toy, tmp_path):
    options = ("--data", rows, "--model", toy, "--out", "out", "--decoding", "guided")
    run("run", "llm_text_toxicity", *options, "--limit", 2)
    for verdict in read(tmp_path / "out/verdicts.jsonl"):
        assert verdict["value"] in (1, 2, 3, 4, 5)
        assert verdict["probabilities"] is None


def test_failed_rows_exit_with_3(run, toy, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"output": "a"}\n{"output": " "}\n')
    done = run("run", "toxicity", "--data", "rows.jsonl", "--model", toy, "--out", "out", code=3)
    assert "missing_input" in done.stdout


def test_a_warning_on_the_data_is_one_line_and_said_once(run, toy, tmp_path):
    text = '{"output": "a", "n": NaN}\n{"output": "b", "n": 1e999}\n'
    (tmp_path / "rows.jsonl").write_text(text)
    done = run("run", "toxicity", "--data", "rows.jsonl", "--model", toy, "--out", "out")
    [line] = [line for line in done.stderr.splitlines() if "NaN" in line]
    assert line == "localjudge: rows.jsonl: NaN and infinite numbers are read as missing values"
    assert "warnings.warn" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "toxisity", "--data", "x.jsonl", "--model", "m", "--out", "o"), "toxicity"),
        (("run", "toxicity", "--data", "x.jsonl", "--model", "m", "--out", "o"), "x.jsonl"),
        (("metrics", "check", "no.toml"), "no.toml"),
        (("metrics", "show", "nothing"), "localjudge metrics"),
        (("show", "nowhere"), "nowhere"),
        (("models", "add", "gpt-17"), "smollm2-135m"),
        (("run", "--data", "x.jsonl", "--model", "m", "--out", "o"), "no metric is given"),
        (("metrics", "show", "llm_summarization", "--explain"), "answers with text"),
        (("export", "nowhere"), "nowhere"),
        (("status", "nowhere"), "nowhere"),
        (("diff", "nowhere", "there"), "nowhere"),
    ],
)
def test_an_error_is_one_message_with_a_hint_and_exit_code_1(run, arguments, says):
    done = run(*arguments, code=1)
    assert done.stderr.startswith("localjudge: ")
    assert says in done.stderr
    assert "hint: " in done.stderr


def test_a_mapping_that_is_none_is_refused(run, rows, toy):
    options = ("--data", rows, "--model", toy, "--out", "out")
    assert "INPUT=COLUMN" in run("run", "toxicity", *options, "--map", "text", code=1).stderr


def test_metrics_are_listed_shown_and_checked(run, toy, tmp_path):
    listed = run("metrics").stdout
    for said in (
        "llm_answer_refusal",
        "reference (optional)",
        "The user ...",
        "of --labels; other",
    ):
        assert said in listed
    shown = run("metrics", "show", "llm_text_sentiment").stdout
    assert 'name = "llm_text_sentiment"' in shown
    assert '{"output": "neutral"}' in shown
    assert "> (text)" in shown
    explained = run("metrics", "show", "llm_text_sentiment", "--explain").stdout
    assert '{"explanation": "...", "output": "neutral"}' in explained
    as_tokens = run("metrics", "show", "llm_text_sentiment", "--model", toy).stdout
    assert "<|im_start|>user\nMessage:\n> (text)\n" in as_tokens
    assert as_tokens.rstrip().endswith("<|im_start|>assistant")
    own = tmp_path / "tone.toml"
    own.write_text(
        'name = "tone"\nkind = "classify"\n[inputs]\ntext = "output"\n'
        '[answers.labels]\na = "one"\nb = "two"\n[prompt]\ndefinition = "x"\nuser = "{text}"\n'
    )
    assert "tone" in run("metrics", "check", own).stdout
    own.write_text(own.read_text().replace("{text}", "{txt}"))
    assert "txt" in run("metrics", "check", own, code=1).stderr


def test_a_metric_from_a_label_file_runs_and_its_run_is_exported_wide(run, toy, tmp_path):
    (tmp_path / "rows.csv").write_text("id,question,answer\n=1,What?,That.\n2,Who?,\n")
    (tmp_path / "tone.toml").write_text('[labels]\ncurt = "Short."\nkind = "Warm."\nlong = ""\n')
    own = ("--labels", "tone.toml", "--text", "Question: {question} Answer: {answer}")
    options = ("--data", "rows.csv", "--model", toy, "--out", "out")
    done = run("run", *own, *options, code=3)
    assert "\ntone\n" in done.stdout
    assert run("export", "out", "--wide").stdout == "out/wide.csv\n"
    header, *rows = (tmp_path / "out/wide.csv").read_text().splitlines()
    assert header == "id,tone_label,tone_score,tone_explanation,tone_status"
    assert rows[0].startswith("'=1,") and rows[0].split(",")[1] in ("curt", "kind", "long")
    assert rows[1] == "2,,,,missing_input"
    assert ".xlsx" in run("export", "out", "--out", "a.xlsx", code=1).stderr
    wrong = ("--labels", "tone.toml", "--text", "{qestion}", *options[:-1], "new")
    assert "did you mean 'question'" in run("run", *wrong, code=1).stderr


def test_explanations_and_orders_are_asked_for_by_options(run, rows, toy, tmp_path):
    options = ("--data", rows, "--model", toy, "--out", "out", "--limit", 2)
    asked = ("--explain", "--explain-tokens", 8, "--permute-labels", 2)
    done = run("run", "toxicity", *options, *asked)
    assert "label flips " in done.stdout
    assert "2 explanations ended at their budget" in done.stdout
    for verdict in read(tmp_path / "out/verdicts.jsonl"):
        assert verdict["explanation"]
        assert "label_flip" in verdict["metadata"]


def test_a_new_metric_file_passes_its_own_check(run, tmp_path):
    assert "tone.toml" in run("metrics", "new", "tone", "--kind", "score").stdout
    assert "tone" in run("metrics", "check", "tone.toml").stdout
    assert "already" in run("metrics", "new", "tone", "--kind", "text", code=1).stderr
    run("metrics", "new", "tone", "--kind", "text", "--out", "other.toml")
    assert 'kind = "text"' in (tmp_path / "other.toml").read_text()


def test_text_of_a_row_does_not_steer_the_terminal(run, toy, tmp_path):
    row = {"id": "\x1b[2J\x1b]0;owned\x07[red]x[/red]", "output": "a"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    run("run", "toxicity", "--data", "rows.jsonl", "--model", toy, "--out", "out")
    shown = run("show", "out").stdout
    assert "\x1b" not in shown
    assert "[red]x[/red]" in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_at_once_and_the_same_command_goes_on(toy, tmp_path, number):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"output": "{"text " * 200}{i}"}}\n' for i in range(3000)))
    command = [sys.executable, "-m", "localjudge", "run", "toxicity", "--data", str(rows)]
    command += ["--model", str(toy), "--out", str(tmp_path / "out"), "--engine", "transformers"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wal = tmp_path / "out/verdicts.db-wal"
    while not wal.exists() or wal.stat().st_size < 100_000:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert "goes on from here" in errors
    assert "Traceback" not in errors


STOPPED = """
import multiprocessing, os, signal, sys, threading, time
from localjudge.cli import _stopped

def child(ready):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.send("ready")
    time.sleep(600)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stopped)
    ready, end = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=child, args=(end,)).start()
    print(ready.recv(), flush=True)
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass
"""


def test_a_signal_ends_what_catches_everything_and_its_children(tmp_path):
    (tmp_path / "stopped.py").write_text(STOPPED)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "stopped.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    _, errors = process.communicate(timeout=60)  # the child has the same output, so it has ended
    assert process.returncode == 128 + signal.SIGTERM
    assert "goes on from here" in errors
    assert "\x1b" not in errors


def test_output_that_cannot_be_written_is_one_line_and_exit_code_1(tmp_path):
    command = [sys.executable, "-m", "localjudge", "metrics"]
    environment = os.environ | {"LOCALJUDGE_HOME": str(tmp_path)}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert b"No space left" in done.stderr
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)


def test_a_reader_that_leaves_early_is_no_error_worth_a_word(tmp_path):
    command = [sys.executable, "-m", "localjudge", "metrics"]
    environment = os.environ | {"LOCALJUDGE_HOME": str(tmp_path)}
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_the_help_of_every_command_says_what_it_does():
    for command in app.registered_commands:
        assert command.callback.__doc__
