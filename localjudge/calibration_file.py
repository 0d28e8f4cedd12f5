"""Calibrations on disk: fitted from a run and human labels, applied to runs of the same judge."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from localjudge.calibration import (
    KindName,
    log_probabilities,
)
from localjudge.compared import distributions
from localjudge.errors import DataError
from localjudge.fitting import Fit, Ordinal, Softmax
from localjudge.outputs import read_whole, replacing
from localjudge.records import Status, Verdict
from localjudge.runs import Run
from localjudge.settings import changed_settings

_LARGEST = 1 << 26  # bytes; no calibration comes near it
FORMAT: Literal["localjudge calibration 1"] = "localjudge calibration 1"
# What a calibration holds for; the engine is none of it, for engines agree within small margins.
_JUDGED_BY = ("model", "prompt_mode", "options")

Row = list[FiniteFloat]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class FigureShape(_Shape):
    """A figure as `Figure.to_dict` writes it."""

    value: FiniteFloat | None
    low: FiniteFloat | None
    high: FiniteFloat | None
    method: str | None
    reason: str | None


Figures = dict[str, FigureShape]


class MetricCalibration(_Shape):
    """The map of one metric.

    Attributes:
        digest: The metric's digest.
        labels: Its answers, in their order.
        scale: Whether they are the steps of a scale.
        kind: The kind of map; see `calibration.Kind`.
        penalty: How much it was held back.
        weights: Shape (labels, labels), or (labels,) of an ordinal map.
        offsets: One for each label; of an ordinal map the thresholds between steps.
        counts: How many rows people gave each label.
        raw: Figures of the judge as it is.
        calibrated: The same of the calibrated judge, by cross-validation.
        gain: By how much its log loss is below that of the labels' shares.
    """

    digest: str
    labels: Annotated[list[str], Field(min_length=2)]
    scale: bool
    kind: KindName
    penalty: FiniteFloat
    weights: list[Row] | Row
    offsets: Row
    counts: dict[str, int]
    raw: Figures
    calibrated: Figures
    gain: FigureShape

    @model_validator(mode="after")
    def _shapes(self) -> MetricCalibration:
        count = len(self.labels)
        ordinal = self.kind == "ordinal"
        shape = (count,) if ordinal else (count, count)
        try:
            weights = np.array(self.weights, dtype=float).shape
        except ValueError:
            raise ValueError("weights: its lines are of different lengths") from None
        if weights != shape:
            raise ValueError(f"weights: shape {weights} in place of {shape}")
        if len(self.offsets) != count - ordinal:
            raise ValueError(f"offsets: {len(self.offsets)} in place of {count - ordinal}")
        if ordinal and (np.diff(self.offsets) <= 0).any():
            raise ValueError("offsets: thresholds do not ascend")
        if len(set(self.labels)) != count or self.counts.keys() != {*self.labels}:
            raise ValueError("labels: they repeat, or are not those of counts")
        return self

    @property
    def fit(self) -> Fit:
        """The map, ready to use."""
        weights, offsets = np.array(self.weights), np.array(self.offsets)
        if self.kind == "ordinal":
            return Ordinal(weights, offsets)
        return Softmax(weights, offsets)

    def apply(self, verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
        """Return what stands beside each verdict; of a failed one, nothing but None.

        Raises:
            DataError: a verdict has no probabilities, or those of other answers.
        """
        beside: list[dict[str, Any]] = [dict.fromkeys(COLUMNS) for _ in verdicts]
        good = [place for place, verdict in enumerate(verdicts) if verdict.status is Status.OK]
        for place in good:
            found = verdicts[place].probabilities
            if found is None or list(found) != self.labels:
                raise DataError(
                    f"the verdict on row {verdicts[place].id!r} has "
                    f"{'no probabilities' if found is None else 'those of other answers'}",
                    hint="judge with direct decoding, by the metric that was calibrated",
                )
        read = distributions([verdicts[place] for place in good], self.labels) if good else None
        if read is None:
            return beside
        probabilities = np.exp(self.fit.log_probabilities(log_probabilities(read)))
        values = np.array(list(map(float, self.labels))) if self.scale else None
        for place, row, answer in zip(
            good, probabilities.tolist(), probabilities.argmax(axis=1).tolist(), strict=True
        ):
            label = self.labels[answer]
            expected = None if values is None else float(np.dot(row, values))
            whole = dict(zip(self.labels, row, strict=True))
            value: str | int = int(label) if self.scale else label
            beside[place] = dict(zip(COLUMNS, (value, whole, row[answer], expected), strict=True))
        return beside


COLUMNS = (
    "calibrated_value",
    "calibrated_probabilities",
    "calibrated_confidence",
    "calibrated_expected_score",
)


class Calibration(_Shape):
    """A calibration file.

    Attributes:
        format: The kind and version of the file.
        judged_by: Settings of the run that it was fitted on: model, prompt mode and options.
        human: SHA-256 of the file of human labels. Of rows and labels nothing is kept.
        metrics: The map of each metric, by name.
    """

    format: Literal["localjudge calibration 1"]
    judged_by: dict[str, Any]
    human: str
    metrics: Annotated[dict[str, MetricCalibration], Field(min_length=1)]

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Calibration:
        """Read a file that `save` wrote.

        Raises:
            DataError: it is not what `save` writes.
            RunError: it cannot be read.
        """
        try:
            return cls.model_validate_json(read_whole(Path(path), _LARGEST))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"])) or None
            raise DataError(
                f"no calibration file: {first['msg']}",
                path=path,
                field=field,
                hint="calibrate again: `localjudge calibrate RUN --human FILE --out FILE`",
            ) from None

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as JSON.

        Raises:
            RunError: the file cannot be written. Nothing is left under its name.
        """
        with replacing(path) as partial:
            text = json.dumps(self.model_dump(), ensure_ascii=False, allow_nan=False, indent=1)
            partial.write_text(text + "\n", encoding="utf-8")

    def check(self, run: Run) -> None:
        """Make sure that it holds for a run.

        Raises:
            DataError: the run was judged by another model or in another way, has no metric that is
                calibrated, or one that reads otherwise.
        """
        lines = [
            f"\n  {key}: {was} -> {now}"
            for key, was, now in changed_settings(self.judged_by, judged_by(run))
        ]
        digests = dict(run.settings["metrics"])
        for name, metric in self.metrics.items():
            if digests.get(name, metric.digest) != metric.digest:
                lines.append(f"\n  {name}: the metric's text or answers are others")
        if not digests.keys() & self.metrics.keys():
            lines.append(f"\n  metrics: {', '.join(self.metrics)} -> {', '.join(digests)}")
        if lines:
            raise DataError(
                f"the calibration is of another judge (calibration -> run):{''.join(lines)}",
                path=run.folder,
                hint="label some rows of this run and calibrate it",
            )

    def calibrated(self, metric: str, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Return verdicts of one metric with calibrated values in place of their own.

        Explanation and score are left out, for they are those of the value that was given first.

        Raises:
            DataError: the metric is not calibrated, or a verdict has no probabilities.
        """
        if metric not in self.metrics:
            raise DataError(f"the metric {metric} is not calibrated")
        return [
            verdict
            if row["calibrated_value"] is None
            else replace(
                verdict,
                value=row["calibrated_value"],
                label=None if verdict.label is None else row["calibrated_value"],
                score=None,
                explanation=None,
                probabilities=row["calibrated_probabilities"],
                confidence=row["calibrated_confidence"],
                expected_score=row["calibrated_expected_score"],
            )
            for verdict, row in zip(verdicts, self.metrics[metric].apply(verdicts), strict=True)
        ]


def judged_by(run: Run) -> dict[str, Any]:
    """Return the settings of a run that a calibration holds for, as JSON values."""
    known = {key: run.settings.get(key) for key in _JUDGED_BY}
    resolved = run.settings.get("resolved") or {}
    known["template"] = resolved.get("template")
    return known


def digest_of(human: str | PathLike[str]) -> str:
    """Return the SHA-256 of a file of human labels."""
    with Path(human).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
