"""The commands that say how far a run can be trusted: each parses, makes one call and prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from localjudge.pairs import pairs

app = typer.Typer(rich_markup_mode=None)


@app.command()
def rates(
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
    more_labels: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Say how wide the intervals would be with N more labels."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the tests on the sample.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file too.")
    ] = None,
) -> None:
    """Estimate the share of each label in a run, corrected by labels that people gave to some rows.

    The labelled rows should be a random sample of the run; what speaks against it is said.
    """
    from localjudge.rates import rates as estimate
    from localjudge.rates import write_rates
    from localjudge.rates_tables import print_rates

    columns = label_columns or ["label"]
    single = len(columns) == 1 and "=" not in columns[0]
    found = estimate(
        folder,
        human,
        label_column=columns[0] if single else pairs(columns, "--label-column", "METRIC=COLUMN"),
        id_column=id_column,
        rater_column=rater_column,
        cluster_column=cluster_column,
        map_labels=pairs(map_labels or [], "--map-label", "HUMAN=JUDGE"),
        min_matched=min_matched,
        more_labels=more_labels or [],
        seed=seed,
    )
    print_rates(found)
    if json_file is not None:
        write_rates(found, json_file)
