"""From timed runs to the figures that are reported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, Literal

from roofline import ModelShape, NewTokens
from ways import OURS, Outcome
from workload import Workload

Cache = Literal["cold", "warm", "none"]


@dataclass(frozen=True)
class Measurement:
    """One timed run of one way.

    Attributes:
        way: Name of the way.
        cache: Whether the prefix cache was empty (`cold`), held the rubric (`warm`), or is `none`.
        rows: How many rows were judged.
        seconds: How long it took.
        outcome: What came out.
    """

    way: str
    cache: Cache
    rows: int
    seconds: float
    outcome: Outcome


def summarise(
    measurements: Sequence[Measurement], work: Workload, shape: ModelShape, peak: float
) -> dict[str, Any]:
    """Return the figures of all ways; headlines start from an empty prefix cache.

    Args:
        measurements: All timed runs.
        work: What was judged.
        shape: The model's sizes.
        peak: Floating-point operations per second that the machine reaches.
    """
    groups: dict[tuple[str, Cache], list[Measurement]] = defaultdict(list)
    for item in measurements:
        groups[item.way, item.cache].append(item)
    details = [_detail(group, work, shape, peak) for group in groups.values()]
    headlines = {item["way"]: item for item in details if item["cache"] != "warm"}
    rates = {way: item["rows_per_s"] for way, item in headlines.items()}
    return {
        "rows_per_s": rates,
        "ratio_to_limit": _ratios_to(rates, "limit"),
        "ratio_to_limit_transformers": _ratios_to(rates, "limit-transformers"),
        "ratio_to": _ratios_of(rates, "localjudge-vllm"),
        "ratio_to_of_transformers": _ratios_of(rates, "localjudge-transformers"),
        "valid_share": _column(headlines, "valid_share"),
        "roofline_share": _column(headlines, "roofline_share"),
        "bf16_peak_tflops": peak / 1e12,
        "prompt_tokens": mean(map(len, work.measured.prompts)),
        "shared_tokens": work.shared,
        "details": details,
    }


def print_table(document: dict[str, Any]) -> None:
    """Print the figures of a finished benchmark for people."""
    print(
        f"{document['model']}: {document['rows']} rows, {document['machine']['processor']}, ",
        end="",
    )
    print(f"{document['machine']['cores']} cores, {document['machine']['gpu'] or 'no GPU'}")
    print(
        f"prompts of {document['prompt_tokens']:.0f} tokens, {document['shared_tokens']} shared; ",
        end="",
    )
    print(f"bf16 peak {document['bf16_peak_tflops']:.2f} TFLOP/s")
    heads = ("way", "cache", "rows/s", "prompt tok/s", "new tok/s", "out/row", "valid", "of peak")
    print("{:<30} {:<5} {:>8} {:>12} {:>10} {:>8} {:>6} {:>8}".format(*heads))
    for item in document["details"]:
        valid = "-" if item["valid_share"] is None else f"{item['valid_share']:.0%}"
        print(
            f"{item['way']:<30} {item['cache']:<5} {item['rows_per_s']:>8.1f} "
            f"{item['prompt_tokens_per_s']:>12.0f} {item['new_tokens_per_s']:>10.0f} "
            f"{item['output_tokens_per_row']:>8.1f} {valid:>6} {item['roofline_share']:>8.1%}"
        )
    for way, ratio in document["ratio_to_limit"].items():
        print(f"{way} reaches {ratio:.2f} of the limit")
    for way, ratio in document["ratio_to_limit_transformers"].items():
        print(f"{way} reaches {ratio:.2f} of its engine alone")
    for way, key in zip(OURS, ("ratio_to", "ratio_to_of_transformers"), strict=True):
        for other, ratio in document[key].items():
            print(f"{way} is {ratio:.1f} times as fast as {other}")


def _detail(
    group: Sequence[Measurement], work: Workload, shape: ModelShape, peak: float
) -> dict[str, Any]:
    """Return the figures of one way from one state of the cache."""
    first = group[0]
    seconds = median(item.seconds for item in group)
    # Direct reading, and the limits, have the beginning of the answer in the prompt.
    direct = first.way in OURS or first.way.startswith("limit")
    prompts = (work.measured.extended if direct else work.measured.prompts)[: first.rows]
    lengths = [len(prompt) for prompt in prompts]
    written = first.outcome.output_tokens
    new = NewTokens.of(
        lengths,
        shared=0 if first.cache == "none" else work.shared,
        cold=first.cache == "cold",
        written=written,
    )
    valid = first.outcome.valid
    return {
        "way": first.way,
        "cache": first.cache,
        "rows": first.rows,
        "seconds": [item.seconds for item in group],
        "rows_per_s": first.rows / seconds,
        "prompt_tokens_per_s": sum(lengths) / seconds,
        "new_tokens_per_s": new.tokens / seconds,
        "output_tokens_per_row": written / first.rows,
        "valid_share": None if valid is None else valid / first.rows,
        "roofline_share": shape.operations(new) / seconds / peak,
    }


def _ratios_to(rates: dict[str, float], limit: str) -> dict[str, float]:
    """Return what part of a limit each of our ways that it limits reaches."""
    ours = [way for way in OURS if way in rates and limit in rates]
    if limit == "limit-transformers":
        ours = [way for way in ours if way == "localjudge-transformers"]
    return {way: rates[way] / rates[limit] for way in ours}


def _ratios_of(rates: dict[str, float], way: str) -> dict[str, float]:
    """Return how many times as fast as each alternative one of our ways is."""
    if way not in rates:
        return {}
    others = {
        other: rate
        for other, rate in rates.items()
        if other not in OURS and not other.startswith("limit")
    }
    batches = [rate for other, rate in others.items() if other.startswith("outlines-transformers")]
    if batches:
        others["outlines-transformers-best"] = max(batches)
    return {other: rates[way] / rate for other, rate in others.items()}


def _column(headlines: dict[str, dict[str, Any]], name: str) -> dict[str, float]:
    return {way: item[name] for way, item in headlines.items() if item[name] is not None}
