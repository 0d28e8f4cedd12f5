"""The commands that read a run: each parses its options, makes one call and prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from localjudge.records import Status

app = typer.Typer(rich_markup_mode=None)
_Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


@app.command()
def show(
    folder: _Run,
    status: Annotated[Status | None, typer.Option(help="Only verdicts of this status.")] = None,
    label: Annotated[str | None, typer.Option(help="Only verdicts with this answer.")] = None,
    below: Annotated[
        float | None, typer.Option(help="Only verdicts with a confidence below this, such as 0.6.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show so many verdicts.")] = 20,
) -> None:
    """Print the verdicts of a run with their probabilities and explanations.

    A run that was stopped, or is going on, shows the verdicts that it has.
    """
    from localjudge.runs import matching, open_run
    from localjudge.views import print_verdicts

    verdicts = open_run(folder).verdicts()
    print_verdicts(matching(verdicts, status=status, label=label, below=below), limit)


@app.command()
def status(folder: _Run) -> None:
    """Say how far a run is, from any terminal; it is not disturbed."""
    from localjudge.progress import read_status
    from localjudge.views import print_status

    print_status(read_status(folder))


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="RUN_A", help="A run folder.")],
    new: Annotated[Path, typer.Argument(metavar="RUN_B", help="Another one.")],
    limit: Annotated[int, typer.Option(min=1, help="Show so many rows.")] = 20,
) -> None:
    """Compare two runs: the settings that changed, counts, and the rows whose answer changed.

    Rows are matched by id and metric. A margin is the difference of the two largest
    probabilities; rows come first where the smaller of the two margins is large.
    """
    from localjudge.differences import compare_runs
    from localjudge.runs import open_run
    from localjudge.views import print_differences

    print_differences(compare_runs(open_run(old), open_run(new), limit=limit))


@app.command()
def export(
    folder: _Run,
    wide: Annotated[
        bool, typer.Option("--wide", help="One row for each input row, with all its metrics.")
    ] = False,
    join: Annotated[
        Path | None,
        typer.Option(help="The data of the run: the wide table beside its own columns."),
    ] = None,
    format_: Annotated[
        Literal["csv", "jsonl", "parquet"] | None,
        typer.Option("--format", help="By default that of the ending of --out, else csv."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A .jsonl, .csv or .parquet file; by default one in the run folder."),
    ] = None,
) -> None:
    """Write the verdicts of a run as a table for other tools.

    Of a run that was stopped, or is going on, those that there are; it then says so.

    In CSV, texts that a spreadsheet could take for a formula get a ' in front.
    """
    from localjudge.exports import export_run, join_run

    if join is None:
        print(export_run(folder, out, wide=wide, format=format_, on_note=_note))
        return
    path, renamed = join_run(folder, join, out, format=format_, on_note=_note)
    for name, now in renamed.items():
        _note(f"the data has a column {name}: the verdict's is called {now}")
    print(path)


def _note(line: str) -> None:
    print(line, file=sys.stderr)
