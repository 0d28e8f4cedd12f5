"""Fitted judges: a linear map from a model's last hidden state to the answers of one metric.

Where the answer would begin, a model's last hidden state holds more than its next token shows. A
head that was fitted on labels that people gave reads it in the same single pass. Its answers are
the metric's own, so they are as valid by construction as any.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from localjudge.engines.base import Choice, Failure
from localjudge.errors import ConfigError, DataError
from localjudge.fitting import Fit, Ordinal, Softmax
from localjudge.metrics import Metric
from localjudge.outputs import made, read_whole, replacing
from localjudge.statistics.bootstrap import Floats

FORMAT: Literal["localjudge head 1"] = "localjudge head 1"
_FACTS, _TENSORS = "head.json", "head.safetensors"
_LARGEST = 1 << 28  # bytes; no head comes near it


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class FigureShape(_Shape):
    """A figure as `Figure.to_dict` writes it."""

    value: FiniteFloat | None
    low: FiniteFloat | None
    high: FiniteFloat | None
    method: str | None
    reason: str | None


class Facts(_Shape):
    """What is known of a head beside its numbers.

    Attributes:
        format: The kind and version of the file.
        metric: Name of the metric.
        digest: The metric's digest.
        judged_by: What the hidden states depend on: digests of the model and of its chat template,
            and the prompt mode.
        labels: The metric's answers, in their order.
        ordinal: Whether they are read along a scale.
        penalty: How much weights were shrunk.
        counts: How many rows people gave each label.
        data: SHA-256 of the file that it was fitted on. Of rows and labels nothing is kept.
        figures: Figures by cross-validation: of the judge as it is (`raw`), `calibrated` and
            `fitted`.
        curve: Number of labels to quadratic (for labels plain) kappa with so many.
        tensors: SHA-256 of the file of numbers.
    """

    format: Literal["localjudge head 1"]
    metric: str
    digest: str
    judged_by: dict[str, str]
    labels: Annotated[list[str], Field(min_length=2)]
    ordinal: bool
    penalty: FiniteFloat
    counts: dict[str, int]
    data: str
    figures: dict[str, dict[str, FigureShape]]
    curve: dict[str, FiniteFloat]
    tensors: str


@dataclass(frozen=True, slots=True)
class Head:
    """A fitted judge of one metric, for one model.

    Attributes:
        facts: What is known of it.
        fit: The map.
        reach: Mean and spread of each feature in training, and the greatest distance of a training
            row from the mean: shapes (2, features) and ().
    """

    facts: Facts
    fit: Fit
    reach: Reach

    def choose(self, states: Sequence[NDArray[np.float32] | Failure]) -> list[Choice | Failure]:
        """Return the distribution over the answers that each hidden state gives.

        A state that is not finite is a `Failure`.
        """
        results: list[Choice | Failure] = []
        for state in states:
            if isinstance(state, Failure):
                results.append(state)
            elif state.shape != self.reach.mean.shape:
                error = (
                    f"hidden states have {state.shape} numbers, the head {self.reach.mean.shape}"
                )
                results.append(Failure(error))
            elif not np.isfinite(state).all():
                results.append(Failure("the model's hidden state is not finite"))
            else:
                row = state.astype(np.float64)[None]
                log_probs = self.fit.log_probabilities(row)[0]
                reach = float(self.reach.distances(row)[0]) / self.reach.farthest
                results.append(Choice(tuple(map(float, log_probs)), reach=reach))
        return results

    def check(self, metric: Metric, judged_by: Mapping[str, str]) -> None:
        """Make sure that the head is this metric's and this model's.

        Raises:
            ConfigError: it is not; what differs is named.
        """
        facts = self.facts
        named = {"metric": facts.metric, "the metric's text or answers": facts.digest}
        here = {"metric": metric.name, "the metric's text or answers": metric.digest}
        for key, was in (named | facts.judged_by).items():
            now = (here | dict(judged_by)).get(key)
            if was != now:
                raise ConfigError(
                    f"the head is of another judge: {key}: {_short(was)} -> {_short(str(now))}",
                    field="head",
                    hint="fit a head for this metric and model: `localjudge fit`",
                )

    def save(self, folder: str | PathLike[str]) -> None:
        """Write `head.json` and `head.safetensors` to a folder, which is made.

        Raises:
            RunError: a file cannot be written.
        """
        from safetensors.numpy import save

        fit = self.fit
        tensors = {
            "weights": fit.weights,
            "offsets": fit.bias if isinstance(fit, Softmax) else fit.thresholds,
            "mean": self.reach.mean,
            "spread": self.reach.spread,
            "farthest": np.array([self.reach.farthest]),
        }
        data = save({name: np.ascontiguousarray(each) for name, each in tensors.items()})
        path = made(folder)
        with replacing(path / _TENSORS) as partial:
            partial.write_bytes(data)
        facts = self.facts.model_copy(update={"tensors": hashlib.sha256(data).hexdigest()})
        with replacing(path / _FACTS) as partial:
            text = json.dumps(facts.model_dump(), ensure_ascii=False, allow_nan=False, indent=1)
            partial.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> Head:
        """Read what `save` wrote.

        Raises:
            DataError: a file is damaged, or not what `save` writes.
            RunError: a file is missing, or cannot be read.
        """
        path = Path(folder)
        text, data = (read_whole(path / name, _LARGEST) for name in (_FACTS, _TENSORS))
        try:
            facts = Facts.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"])) or None
            raise DataError(
                f"no head: {first['msg']}", path=path / _FACTS, field=field, hint=_AGAIN
            ) from None
        if hashlib.sha256(data).hexdigest() != facts.tensors:
            raise DataError(
                "the numbers are not those that head.json names", path=path / _TENSORS, hint=_AGAIN
            )
        return cls(facts, *_read(data, facts, path / _TENSORS))


_AGAIN = "copy the folder again, or fit anew: `localjudge fit`"


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the rows lay that a head was fitted on.

    Attributes:
        mean: Mean of each feature.
        spread: Standard deviation of each, 1 where it is 0.
        farthest: The greatest distance of a row from the mean, in spreads, root mean square.
    """

    mean: Floats
    spread: Floats
    farthest: float

    @classmethod
    def of(cls, features: Floats) -> Reach:
        """Return that of some rows, shape (rows, features)."""
        mean, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        within = cls(mean, spread, 0.0)
        return cls(mean, spread, float(within.distances(features).max()))

    def distances(self, features: Floats) -> Floats:
        """Return how far rows lie from the mean, in spreads, root mean square over features."""
        apart: Floats = np.sqrt((((features - self.mean) / self.spread) ** 2).mean(axis=1))
        return apart


def _read(data: bytes, facts: Facts, path: Path) -> tuple[Fit, Reach]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        found: dict[str, Any] = load(data)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"no safetensors file: {error}", path=path, hint=_AGAIN) from None
    labels = len(facts.labels)
    width = found["mean"].size if "mean" in found else 0
    shapes = {
        "weights": (width,) if facts.ordinal else (width, labels),
        "offsets": (labels - facts.ordinal,),
        "mean": (width,),
        "spread": (width,),
        "farthest": (1,),
    }
    sound = found.keys() == shapes.keys() and all(
        each.shape == shapes[name] and each.dtype == np.float64 and np.isfinite(each).all()
        for name, each in found.items()
    )
    if not sound or not width or (found["spread"] <= 0).any() or not found["farthest"] > 0:
        raise DataError("no head: numbers of another shape, or not finite", path=path, hint=_AGAIN)
    if facts.ordinal and (np.diff(found["offsets"]) <= 0).any():
        raise DataError("no head: thresholds do not ascend", path=path, hint=_AGAIN)
    weights, offsets = found["weights"], found["offsets"]
    fit: Fit = Ordinal(weights, offsets) if facts.ordinal else Softmax(weights, offsets)
    return fit, Reach(found["mean"], found["spread"], float(found["farthest"][0]))


def _short(text: str) -> str:
    return text if len(text) <= 20 else f"{text[:12]}…"
