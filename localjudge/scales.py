"""The steps of a scale, and what their meanings must be to make one."""

from __future__ import annotations

from collections.abc import Mapping

from localjudge.errors import MetricError

_FURTHEST = 9999
_SHOWN = 5  # of the steps that are missing


def check_step(step: object) -> None:
    """Check that `step` can be one of a scale.

    Raises:
        MetricError: it is not an integer, or further from zero than 9999.
    """
    if isinstance(step, bool) or not isinstance(step, int) or abs(step) > _FURTHEST:
        raise MetricError(
            f"the step {step!r} is not an integer from -{_FURTHEST} to {_FURTHEST}",
            field="answers.scale",
        )


def check_meanings(meanings: Mapping[int, str]) -> None:
    """Check that `{1: meaning, ...}` has a meaning for every step between its ends.

    Raises:
        MetricError: it is no mapping or an empty one, or a step is missing or no step.
    """
    if not isinstance(meanings, Mapping):
        raise MetricError(
            f"{meanings!r} is of type {type(meanings).__name__}, not a mapping",
            field="answers.scale",
            hint="give the meaning of every step: {1: ..., 2: ...}",
        )
    if not meanings:
        raise MetricError("the scale is empty", field="answers.scale")
    for step in meanings:
        check_step(step)
    low, high = min(meanings), max(meanings)
    missing = [step for step in range(low, high + 1) if step not in meanings]
    if missing:
        shown = ", ".join(map(str, missing[:_SHOWN]))
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise MetricError(
            f"the scale from {low} to {high} has no meaning for {shown}{more}",
            field="answers.scale",
        )
