"""The commands that say how far a run can be trusted: each parses, makes one call and prints."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from localjudge.pairs import pairs

app = typer.Typer(rich_markup_mode=None)

# What is asked of every file of human labels.
_Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
_Human = Annotated[Path, typer.Option(help="Human labels: .jsonl, .csv, .tsv or .parquet.")]
_LabelColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--label-column",
        help="Column of the labels, `label` by default; METRIC=COLUMN in a run of several.",
    ),
]
_IdColumn = Annotated[str | None, typer.Option(help="Column of the rows' ids.")]
_MapLabels = Annotated[
    list[str] | None,
    typer.Option("--map-label", help="HUMAN=JUDGE, where a label is called differently."),
]
_RaterColumn = Annotated[str | None, typer.Option(help="Column that says who gave the label.")]
_ClusterColumn = Annotated[
    str | None,
    typer.Option(help="Column of rows that belong together, such as those of one document."),
]
_MinMatched = Annotated[
    float,
    typer.Option(min=0, max=1, help="The least share of labelled ids that the run must have."),
]
_MoreLabels = Annotated[
    list[int] | None,
    typer.Option(min=1, help="Say how wide the intervals would be with N more labels."),
]
_Resamples = Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")]
_Seed = Annotated[int, typer.Option(min=0, help="Seed of all that is random.")]
_Json = Annotated[Path | None, typer.Option("--json", help="Write all figures to this file too.")]


@app.command()
def agree(
    folder: _Run,
    human: _Human,
    label_columns: _LabelColumns = None,
    id_column: _IdColumn = None,
    map_labels: _MapLabels = None,
    rater_column: _RaterColumn = None,
    cluster_column: _ClusterColumn = None,
    min_matched: _MinMatched = 0.5,
    calibration: Annotated[
        Path | None, typer.Option(help="A file that `calibrate` wrote on other labels.")
    ] = None,
    more_labels: _MoreLabels = None,
    resamples: _Resamples = 2000,
    seed: _Seed = 0,
    json_file: _Json = None,
) -> None:
    """Measure how far a run agrees with labels that people gave, with 95% intervals."""
    from localjudge.agreement import agree as measure
    from localjudge.agreement import write_agreements
    from localjudge.agreement_tables import print_agreements

    agreements = measure(
        folder,
        human,
        label_column=_columns(label_columns),
        id_column=id_column,
        rater_column=rater_column,
        cluster_column=cluster_column,
        map_labels=_mapping(map_labels),
        min_matched=min_matched,
        calibration=calibration,
        more_labels=more_labels or [],
        resamples=resamples,
        seed=seed,
    )
    print_agreements(agreements)
    if json_file is not None:
        write_agreements(agreements, json_file)


@app.command()
def calibrate(
    folder: _Run,
    human: _Human,
    out: Annotated[Path, typer.Option(help="The calibration, a .json file.")],
    label_columns: _LabelColumns = None,
    id_column: _IdColumn = None,
    map_labels: _MapLabels = None,
    cluster_column: _ClusterColumn = None,
    min_matched: _MinMatched = 0.5,
    seed: _Seed = 0,
) -> None:
    """Fit the judge's probabilities to labels that people gave, and say what that gains.

    The figures come from cross-validation. A metric is left out where nothing is gained over the
    labels' shares alone; if that is so of all, no file is written and the exit code is 1.
    """
    from localjudge.calibrated_runs import calibrate_run
    from localjudge.calibration_tables import print_calibrating

    made = calibrate_run(
        folder,
        human,
        label_column=_columns(label_columns),
        id_column=id_column,
        cluster_column=cluster_column,
        map_labels=_mapping(map_labels),
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

    path, total, changed = apply_calibration(folder, calibration, out)
    print(f"{total:,} verdicts calibrated; {changed:,} have another answer than before")
    print(path)


@app.command()
def fit(
    metric: Annotated[str, typer.Argument(help="A shipped metric by name, or a file by path.")],
    data: Annotated[Path, typer.Option(help="Rows with labels: .jsonl, .csv, .tsv or .parquet.")],
    model: Annotated[str, typer.Option(help="Name of an installed model, or a model folder.")],
    out: Annotated[Path, typer.Option(help="The folder of the head.")],
    label_column: Annotated[str, typer.Option(help="Column of the labels.")] = "label",
    id_column: _IdColumn = None,
    map_labels: _MapLabels = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", help="INPUT=COLUMN, where a metric's default does not fit."),
    ] = None,
    group_column: Annotated[
        str | None,
        typer.Option(help="Column of rows that belong together, which are never parted."),
    ] = None,
    engine: Annotated[
        Literal["auto", "transformers", "vllm"],
        typer.Option(help="What runs the model; auto takes what suits this machine."),
    ] = "auto",
    seed: _Seed = 0,
) -> None:
    """Fit a judge for one metric: a linear head on the model's last hidden state.

    The figures come from cross-validation. If the head says no more than the labels' shares alone,
    no head is written and the exit code is 1. Judge with it by `run --head`.
    """
    from localjudge.head_fitting import fit_head
    from localjudge.head_tables import print_fitted
    from localjudge.library import find_metric

    fitted = fit_head(
        find_metric(metric),
        data,
        model=model,
        label_column=label_column,
        id_column=id_column,
        group_column=group_column,
        map_labels=_mapping(map_labels),
        mapping=pairs(mapping or [], "--map", "INPUT=COLUMN"),
        engine=engine,
        seed=seed,
        on_rows=lambda number: print(f"  {number:,} rows read", file=sys.stderr),
    )
    print_fitted(fitted)
    if not fitted.worth_it:
        print(
            "no head is written: beyond chance, it says no more than the labels' shares alone",
            file=sys.stderr,
        )
        raise typer.Exit(1)
    fitted.head.save(out)
    print(out)


@app.command()
def rates(
    folder: _Run,
    human: _Human,
    label_columns: _LabelColumns = None,
    id_column: _IdColumn = None,
    map_labels: _MapLabels = None,
    rater_column: _RaterColumn = None,
    cluster_column: _ClusterColumn = None,
    min_matched: _MinMatched = 0.5,
    more_labels: _MoreLabels = None,
    seed: _Seed = 0,
    json_file: _Json = None,
) -> None:
    """Estimate the share of each label in a run, corrected by labels that people gave to some rows.

    The labelled rows should be a random sample of the run; what speaks against it is said.
    """
    from localjudge.rates import rates as estimate
    from localjudge.rates import write_rates
    from localjudge.rates_tables import print_rates

    found = estimate(
        folder,
        human,
        label_column=_columns(label_columns),
        id_column=id_column,
        rater_column=rater_column,
        cluster_column=cluster_column,
        map_labels=_mapping(map_labels),
        min_matched=min_matched,
        more_labels=more_labels or [],
        seed=seed,
    )
    print_rates(found)
    if json_file is not None:
        write_rates(found, json_file)


@app.command()
def report(
    folder: _Run,
    human: Annotated[
        Path | None, typer.Option(help="Human labels: .jsonl, .csv, .tsv or .parquet.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The data of the run, to show the texts of its rows.")
    ] = None,
    label_columns: _LabelColumns = None,
    id_column: _IdColumn = None,
    map_labels: _MapLabels = None,
    rater_column: _RaterColumn = None,
    cluster_column: _ClusterColumn = None,
    min_matched: _MinMatched = 0.5,
    resamples: _Resamples = 2000,
    seed: _Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="The file; by default report.html in the run folder.")
    ] = None,
) -> None:
    """Write a report on a run as one HTML file: what the judge gets wrong, and if it may be used.

    Without --human it says what was answered, and that nobody knows whether it is right.
    """
    from localjudge.report import write_report

    path = write_report(
        folder,
        out,
        human=human,
        data=data,
        label_column=_columns(label_columns),
        id_column=id_column,
        rater_column=rater_column,
        cluster_column=cluster_column,
        map_labels=_mapping(map_labels),
        min_matched=min_matched,
        resamples=resamples,
        seed=seed,
    )
    print(path)


def _columns(given: list[str] | None) -> str | Mapping[str, str]:
    """Return the one column of all labels, or metric to column."""
    columns = given or ["label"]
    if len(columns) == 1 and "=" not in columns[0]:
        return columns[0]
    return pairs(columns, "--label-column", "METRIC=COLUMN")


def _mapping(given: list[str] | None) -> Mapping[str, str]:
    return pairs(given or [], "--map-label", "HUMAN=JUDGE")
