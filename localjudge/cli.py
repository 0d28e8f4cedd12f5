"""The commands: each parses its options, makes one call and prints."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal, NoReturn

import typer

from localjudge.answers import Kind
from localjudge.encoding import PromptMode
from localjudge.errors import ConfigError, LocaljudgeError
from localjudge.judge import Decoding

FINISHED_WITH_FAILURES = 3
_GRACE = 3.0  # seconds that a process of an engine has to end by itself

app = typer.Typer(
    help="Judge rows by metrics, offline, with an open model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
metrics_app = typer.Typer(help="List, show and check metrics.", no_args_is_help=False)
models_app = typer.Typer(help="List and install models.", no_args_is_help=False)
app.add_typer(metrics_app, name="metrics", invoke_without_command=True)
app.add_typer(models_app, name="models", invoke_without_command=True)


def main() -> None:
    """Run the command line; the exit code is 0, 1 (stopped), 2 (usage) or 3 (failed rows)."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stopped)
    if sys.stdout is None or sys.stderr is None:
        sys.exit("localjudge: standard output and standard error must be open")
    try:
        from localjudge.offline import go_offline

        go_offline()
        try:
            app()
        finally:
            sys.stdout.flush()
    except LocaljudgeError as error:
        print(f"localjudge: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:  # of standard output: those of files are errors of ours
        if not isinstance(error, BrokenPipeError):
            print(f"localjudge: cannot be written: {error}", file=sys.stderr)
        # What is still to be written would fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _stopped(number: int, _frame: FrameType | None) -> NoReturn:
    # An exception would be caught by whatever library is at work, so the process ends here.
    # The run folder is made to be left at any moment.
    show_cursor = b"\x1b[?25h" if os.isatty(2) else b""
    message = b"\nlocaljudge: stopped; a run goes on from here by the same command\n"
    with suppress(OSError):
        os.write(2, show_cursor + message)
    # vLLM's own process, if there is one. Nothing is imported here: an import may be under way.
    processes = sys.modules.get("multiprocessing.process")
    children = processes.active_children() if processes else []
    for child in children:
        child.terminate()
    for child in children:
        child.join(_GRACE)
        child.kill()
    os._exit(128 + number)


@app.command()
def run(
    data: Annotated[Path, typer.Option(help="Rows: .jsonl, .csv, .tsv or .parquet.")],
    model: Annotated[str, typer.Option(help="Name of an installed model, or a model folder.")],
    out: Annotated[Path, typer.Option(help="Run folder: new, or that of the same run.")],
    metrics: Annotated[
        list[str] | None,
        typer.Argument(metavar="METRIC", help="Shipped metrics by name, or files by path."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Label file: of a metric of your own, with --text, or of topic."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(help="What that metric reads: text with {column} placeholders."),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="INPUT=COLUMN, where a metric's default does not fit. COLUMN may be a path: "
            "attributes.output.value, documents[0].text.",
        ),
    ] = None,
    id_column: Annotated[str | None, typer.Option(help="Column of the rows' ids.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Judge only the first N rows.")] = None,
    engine: Annotated[
        Literal["auto", "transformers", "vllm"],
        typer.Option(help="What runs the model; auto takes what suits this machine."),
    ] = "auto",
    engine_args: Annotated[
        list[str] | None,
        typer.Option("--engine-arg", help="KEY=VALUE, a further option of the engine."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    decoding: Annotated[
        Decoding, typer.Option(help="direct reads probabilities; guided writes the answer.")
    ] = "direct",
    explain: Annotated[
        bool, typer.Option("--explain", help="Write an explanation before each verdict.")
    ] = False,
    explain_tokens: Annotated[
        int, typer.Option(min=1, help="The most tokens of an explanation.")
    ] = 120,
    permute_labels: Annotated[
        int, typer.Option(min=1, help="Ask with the labels in N orders, and average.")
    ] = 1,
    truncate: Annotated[
        list[str] | None,
        typer.Option(
            help="INPUT=head, INPUT=tail or INPUT=middle: what is cut out of an input whose prompt "
            "is too long. Without it such a row has no verdict."
        ),
    ] = None,
    prompt_mode: Annotated[
        PromptMode, typer.Option(help="raw is for base models without a chat template.")
    ] = "chat",
) -> None:
    """Judge every row of a file by one or more metrics.

    The same command goes on where an earlier one was stopped.

    A metric of your own needs no file of its own: --labels names a TOML file with a [labels] or
    [scale] table, answer = "what it means", and may give name, definition and direction; --text
    is what the model reads of a row. Without --text, the labels are the topics of `topic`.

    Exit code: 0 all rows have a verdict, 3 finished with failed rows, 1 stopped.
    """
    from localjudge.library import find_metrics
    from localjudge.run import run_file
    from localjudge.terminal import print_result, progress_bar

    with progress_bar() as on_progress:
        result = run_file(
            find_metrics(metrics or [], labels=labels, text=text),
            data,
            model=model,
            out=out,
            engine=engine,
            settings={
                "device": device,
                "dtype": dtype,
                "engine_args": _pairs(engine_args or [], "--engine-arg", "KEY=VALUE"),
            },
            prompt_mode=prompt_mode,
            options={
                "decoding": decoding,
                "explain": explain,
                "explain_tokens": explain_tokens,
                "permute_labels": permute_labels,
                "truncate": _pairs(truncate or [], "--truncate", "INPUT=PART"),
            },
            mapping=_pairs(mapping or [], "--map", "INPUT=COLUMN"),
            id_column=id_column,
            limit=limit,
            on_progress=on_progress,
            on_note=lambda note: print(note, file=sys.stderr),
        )
    print_result(result)
    if result.failed:
        raise typer.Exit(FINISHED_WITH_FAILURES)


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    limit: Annotated[int, typer.Option(min=1, help="Show so many verdicts.")] = 20,
) -> None:
    """Print the verdicts of a run with their probabilities."""
    from localjudge.store import read_verdicts
    from localjudge.terminal import print_verdicts

    print_verdicts(read_verdicts(folder), limit)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    wide: Annotated[
        bool, typer.Option("--wide", help="One row for each input row, with all its metrics.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A .jsonl, .csv or .parquet file; by default a .csv file in the run folder."
        ),
    ] = None,
) -> None:
    """Write the verdicts of a run as a table for other tools.

    In CSV, texts that a spreadsheet could take for a formula get a ' in front.
    """
    from localjudge.exports import export_run

    print(export_run(folder, out, wide=wide))


@metrics_app.callback()
def metrics(context: typer.Context) -> None:
    """List the shipped metrics."""
    from localjudge.library import find_metric, shipped
    from localjudge.terminal import print_metrics

    if context.invoked_subcommand is None:
        print_metrics(find_metric(name) for name in shipped())


@metrics_app.command("show")
def show_metric(
    name: Annotated[str, typer.Argument(help="A shipped metric, or a metric file.")],
    model: Annotated[
        str | None, typer.Option(help="Print the prompt in this model's chat template.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the prompt that asks for an explanation.")
    ] = False,
) -> None:
    """Print a metric's file, and the prompt as a model gets it."""
    from localjudge.library import find_metric
    from localjudge.terminal import print_prompt

    metric, tokenizer = find_metric(name), None
    if model is not None:
        from localjudge.models import load_tokenizer

        tokenizer = load_tokenizer(model)
    print_prompt(metric, tokenizer, explain=explain)


@metrics_app.command("check")
def check_metric(
    file: Annotated[Path, typer.Argument(help="A metric file.")],
) -> None:
    """Check a metric file of your own."""
    from localjudge.metrics import load_metric
    from localjudge.terminal import print_metrics

    print_metrics([load_metric(file)])


@metrics_app.command("new")
def new_metric(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the metric is called.")],
    kind: Annotated[Kind, typer.Option(help="What it answers with: a label, a number or a text.")],
    out: Annotated[
        Path | None, typer.Option(help="The file; by default NAME.toml in this folder.")
    ] = None,
) -> None:
    """Write a metric file to start from, with comments."""
    from localjudge.library import write_starter

    path = out or Path(f"{name}.toml")
    write_starter(name, kind, path)
    print(f"{path}\nnow change it, then: localjudge metrics check {path}")


@models_app.callback()
def models(context: typer.Context) -> None:
    """List the installed models."""
    from localjudge.models import list_models
    from localjudge.terminal import print_models

    if context.invoked_subcommand is None:
        print_models(list_models())


@models_app.command("add")
def add_model(
    name: Annotated[str, typer.Argument(help="smollm2-135m")],
) -> None:
    """Install the embedded model. This is the one command that uses the network."""
    from localjudge import models

    added = models.add_model(name, progress=lambda step: print(f"  {step}", file=sys.stderr))
    print(f"{added.name}  {added.path}")
    print(models.EMBEDDED_NOTICE)


@app.command()
def agree(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    human: Annotated[Path, typer.Option(help="Human labels: .jsonl, .csv, .tsv or .parquet.")],
    label_columns: Annotated[
        list[str] | None,
        typer.Option(
            "--label-column",
            help="Column of the labels, `label` by default; METRIC=COLUMN in a run of several.",
        ),
    ] = None,
    id_column: Annotated[str | None, typer.Option(help="Column of the rows' ids.")] = None,
    map_labels: Annotated[
        list[str] | None,
        typer.Option("--map-label", help="HUMAN=JUDGE, where a label is called differently."),
    ] = None,
    rater_column: Annotated[
        str | None, typer.Option(help="Column that says who gave the label.")
    ] = None,
    cluster_column: Annotated[
        str | None,
        typer.Option(help="Column of rows that belong together, which widens the intervals."),
    ] = None,
    min_matched: Annotated[
        float,
        typer.Option(min=0, max=1, help="The least share of labelled ids that the run must have."),
    ] = 0.5,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file too.")
    ] = None,
) -> None:
    """Measure how far a run agrees with labels that people gave, with 95% intervals."""
    from localjudge.agreement import agree as measure
    from localjudge.agreement import write_agreements
    from localjudge.agreement_tables import print_agreements

    columns = label_columns or ["label"]
    single = len(columns) == 1 and "=" not in columns[0]
    agreements = measure(
        folder,
        human,
        label_column=columns[0] if single else _pairs(columns, "--label-column", "METRIC=COLUMN"),
        id_column=id_column,
        rater_column=rater_column,
        cluster_column=cluster_column,
        map_labels=_pairs(map_labels or [], "--map-label", "HUMAN=JUDGE"),
        min_matched=min_matched,
        resamples=resamples,
        seed=seed,
    )
    print_agreements(agreements)
    if json_file is not None:
        write_agreements(agreements, json_file)


def _pairs(texts: list[str], option: str, form: str) -> dict[str, str]:
    """Read `KEY=VALUE` texts."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise ConfigError(f"{text!r} is not of the form {form}", field=option)
        if key in pairs:
            raise ConfigError(f"{key!r} is given twice", field=option)
        pairs[key] = value
    return pairs
