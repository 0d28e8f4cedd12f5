"""The commands that say how far a run can be trusted: each makes one call and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from localjudge.pairs import pairs

app = typer.Typer(rich_markup_mode=None)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    human: Annotated[
        Path | None, typer.Option(help="Human labels: .jsonl, .csv, .tsv or .parquet.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The data of the run, to show the texts of its rows.")
    ] = None,
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
    out: Annotated[
        Path | None, typer.Option(help="The file; by default report.html in the run folder.")
    ] = None,
) -> None:
    """Write a report on a run as one HTML file: what the judge gets wrong, and if it may be used.

    Without --human it says what was answered, and that nobody knows whether it is right.
    """
    from localjudge.report import write_report

    columns = label_columns or ["label"]
    single = len(columns) == 1 and "=" not in columns[0]
    path = write_report(
        folder,
        out,
        human=human,
        data=data,
        label_column=columns[0] if single else pairs(columns, "--label-column", "METRIC=COLUMN"),
        id_column=id_column,
        rater_column=rater_column,
        cluster_column=cluster_column,
        map_labels=pairs(map_labels or [], "--map-label", "HUMAN=JUDGE"),
        min_matched=min_matched,
        resamples=resamples,
        seed=seed,
    )
    print(path)
