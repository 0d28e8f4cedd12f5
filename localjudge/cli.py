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

from localjudge import run_commands, trust_commands
from localjudge.answers import Kind
from localjudge.encoding import PromptMode
from localjudge.errors import LocaljudgeError
from localjudge.options import Decoding
from localjudge.pairs import pairs

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
app.add_typer(run_commands.app)
app.add_typer(trust_commands.app)


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
    data: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Rows: .jsonl, .json, .csv, .tsv (also with .gz, .zst) or .parquet; a dataset "
            "folder; or - for standard input.",
        ),
    ],
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
    data_format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="csv, jsonl.gz, ...: of a file whose name does not say it, or of standard input "
            "(by default jsonl).",
        ),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of a dataset folder.")] = None,
    id_column: Annotated[str | None, typer.Option(help="Column of the rows' ids.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Judge only the first N rows.")] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of verdicts to reuse, and to keep, across runs."),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option(help="Judge rows again that an earlier start could not.")
    ] = True,
    max_failures: Annotated[
        int | None, typer.Option(min=0, help="Stop when more than N rows have failed.")
    ] = None,
    log_file: Annotated[
        Path | None, typer.Option(help="Add to this file what happens, line by line.")
    ] = None,
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
    think: Annotated[
        bool, typer.Option("--think", help="Let the model think first, if it has a mode for it.")
    ] = False,
    think_tokens: Annotated[
        int, typer.Option(min=1, help="The most tokens of its thoughts.")
    ] = 1024,
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

    The same command goes on where an earlier one was stopped; with --data -, the same rows must
    be piped in again.

    A metric of your own needs no file of its own: --labels names a TOML file with a [labels] or
    [scale] table, answer = "what it means", and may give name, definition and direction; --text
    is what the model reads of a row. Without --text, the labels are the topics of `topic`.

    Exit code: 0 all rows have a verdict, 3 finished with failed rows, 1 stopped.
    """
    from localjudge.library import find_metrics
    from localjudge.log_file import log_file as open_log
    from localjudge.run import run_file
    from localjudge.terminal import print_result, progress_bar

    with open_log(log_file) as log, progress_bar(log) as on_progress:

        def note(line: str) -> None:
            print(line, file=sys.stderr)
            log(line)

        result = run_file(
            find_metrics(metrics or [], labels=labels, text=text),
            data,
            model=model,
            out=out,
            engine=engine,
            settings={
                "device": device,
                "dtype": dtype,
                "engine_args": pairs(engine_args or [], "--engine-arg", "KEY=VALUE"),
            },
            prompt_mode=prompt_mode,
            options={
                "decoding": decoding,
                "explain": explain,
                "explain_tokens": explain_tokens,
                "think": think,
                "think_tokens": think_tokens,
                "permute_labels": permute_labels,
                "truncate": pairs(truncate or [], "--truncate", "INPUT=PART"),
            },
            mapping=pairs(mapping or [], "--map", "INPUT=COLUMN"),
            data_format=data_format,
            split=split,
            id_column=id_column,
            limit=limit,
            cache=cache,
            retry_failed=retry_failed,
            max_failures=max_failures,
            on_progress=on_progress,
            on_note=note,
        )
    print_result(result)
    if result.failed:
        raise typer.Exit(FINISHED_WITH_FAILURES)


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
