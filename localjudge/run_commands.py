"""The commands that read a run: each parses its options, makes one call and prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from localjudge.pairs import pairs
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

    A run that was stopped shows the verdicts that it has.
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

    In CSV, texts that a spreadsheet could take for a formula get a ' in front.
    """
    from localjudge.exports import export_run, join_run

    if join is None:
        print(export_run(folder, out, wide=wide, format=format_))
        return
    path, renamed = join_run(folder, join, out, format=format_)
    for name, now in renamed.items():
        print(f"the data has a column {name}: the verdict's is called {now}", file=sys.stderr)
    print(path)


@app.command()
def agree(
    folder: _Run,
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
    more_labels: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Say how wide the intervals would be with N more labels."),
    ] = None,
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
        label_column=columns[0] if single else pairs(columns, "--label-column", "METRIC=COLUMN"),
        id_column=id_column,
        rater_column=rater_column,
        cluster_column=cluster_column,
        map_labels=pairs(map_labels or [], "--map-label", "HUMAN=JUDGE"),
        min_matched=min_matched,
        more_labels=more_labels or [],
        resamples=resamples,
        seed=seed,
    )
    print_agreements(agreements)
    if json_file is not None:
        write_agreements(agreements, json_file)
