"""The commands: each parses its options, makes one call and prints."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal, NoReturn

import typer

from localjudge.encoding import PromptMode
from localjudge.errors import ConfigError, LocaljudgeError
from localjudge.judge import Decoding

FINISHED_WITH_FAILURES = 3
_PATIENCE = 8.0  # seconds

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
    try:
        from localjudge.offline import go_offline

        go_offline()
        app()
    except LocaljudgeError as error:
        print(f"localjudge: {error}", file=sys.stderr)
        sys.exit(1)


def _stopped(number: int, _frame: FrameType | None) -> NoReturn:
    print("\nlocaljudge: stopped; a run goes on from here by the same command", file=sys.stderr)
    # Some library may swallow the exit, or not come back for long. By force nothing is lost either:
    # what is stored is safe, and an engine's own process ends with this one.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _frame: os._exit(128 + number))
    forced = threading.Timer(_PATIENCE, os._exit, [128 + number])
    forced.daemon = True
    forced.start()
    sys.exit(128 + number)


@app.command()
def run(
    metrics: Annotated[
        list[str], typer.Argument(help="Shipped metrics by name, or metric files by path.")
    ],
    data: Annotated[Path, typer.Option(help="Rows: .jsonl, .csv, .tsv or .parquet.")],
    model: Annotated[str, typer.Option(help="Name of an installed model, or a model folder.")],
    out: Annotated[Path, typer.Option(help="Run folder: new, or that of the same run.")],
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", help="INPUT=COLUMN, where a metric's default does not fit."),
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
    prompt_mode: Annotated[
        PromptMode, typer.Option(help="raw is for base models without a chat template.")
    ] = "chat",
) -> None:
    """Judge every row of a file by one or more metrics.

    The same command goes on where an earlier one was stopped.

    Exit code: 0 all rows have a verdict, 3 finished with failed rows, 1 stopped.
    """
    from localjudge.library import find_metric
    from localjudge.run import run_file
    from localjudge.terminal import print_result, progress_bar

    with progress_bar() as on_progress:
        result = run_file(
            [find_metric(name) for name in metrics],
            data,
            model=model,
            out=out,
            engine=engine,
            settings={
                "device": device,
                "dtype": dtype,
                "engine_args": _pairs(engine_args or [], "--engine-arg", "KEY=VALUE"),
            },
            decoding=decoding,
            prompt_mode=prompt_mode,
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
) -> None:
    """Print a metric's file, and the prompt as a model gets it."""
    from localjudge.library import find_metric
    from localjudge.terminal import print_prompt

    metric, tokenizer = find_metric(name), None
    if model is not None:
        from localjudge.models import load_tokenizer

        tokenizer = load_tokenizer(model)
    print_prompt(metric, tokenizer)


@metrics_app.command("check")
def check_metric(
    file: Annotated[Path, typer.Argument(help="A metric file.")],
) -> None:
    """Check a metric file of your own."""
    from localjudge.metrics import load_metric
    from localjudge.terminal import print_metrics

    print_metrics([load_metric(file)])


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
