"""The commands that say how far a run can be trusted: each parses, makes one call and prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from localjudge.pairs import pairs

app = typer.Typer(rich_markup_mode=None)
_Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


@app.command()
def calibrate(
    folder: _Run,
    human: Annotated[Path, typer.Option(help="Human labels: .jsonl, .csv, .tsv or .parquet.")],
    out: Annotated[Path, typer.Option(help="The calibration, a .json file.")],
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
    cluster_column: Annotated[
        str | None,
        typer.Option(help="Column of rows that belong together, which are never parted."),
    ] = None,
    min_matched: Annotated[
        float,
        typer.Option(min=0, max=1, help="The least share of labelled ids that the run must have."),
    ] = 0.5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the folds and intervals.")] = 0,
) -> None:
    """Fit the judge's probabilities to labels that people gave, and say what that gains.

    The figures come from cross-validation. A metric is left out where nothing is gained over the
    labels' shares alone; if that is so of all, no file is written and the exit code is 1.
    """
    from localjudge.calibrated_runs import calibrate_run
    from localjudge.calibration_tables import print_calibrating

    columns = label_columns or ["label"]
    single = len(columns) == 1 and "=" not in columns[0]
    made = calibrate_run(
        folder,
        human,
        label_column=columns[0] if single else pairs(columns, "--label-column", "METRIC=COLUMN"),
        id_column=id_column,
        cluster_column=cluster_column,
        map_labels=pairs(map_labels or [], "--map-label", "HUMAN=JUDGE"),
        min_matched=min_matched,
        seed=seed,
    )
    print_calibrating(made)
    for metric, reason in made.refused.items():
        print(f"{metric} is not calibrated: {reason}", file=sys.stderr)
    if made.calibration is None:
        raise typer.Exit(1)
    made.calibration.save(out)
    print(out)


@app.command()
def apply(
    folder: _Run,
    calibration: Annotated[Path, typer.Option(help="A file that `calibrate` wrote.")],
    out: Annotated[Path | None, typer.Option(help="A folder; by default the run's own.")] = None,
) -> None:
    """Write the verdicts of a run with calibrated ones beside them.

    The files are calibrated.jsonl and calibrated.parquet.
    """
    from localjudge.calibrated_runs import apply_calibration
    from localjudge.calibration_file import Calibration

    loaded = Calibration.load(calibration)
    path, total, changed = apply_calibration(folder, loaded, out)
    print(f"{total:,} verdicts calibrated; {changed:,} have another answer than before")
    print(path)


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
