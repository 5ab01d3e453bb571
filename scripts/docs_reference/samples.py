"""Figures of the bundled samples, computed from their files."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from scripts.docs_reference.blocks import table

SAMPLES = Path(__file__).parents[2] / "samples"
RUNS = {
    "opt125m-h100-e2e": ("H100", "SM90_H100"),
    "opt125m-h200": ("H100", "SM90_H200"),
    "opt125m-a100-e2e": ("A100", "SM80_A100"),
}
"""Directory -> the GPU that was traced and the config that was simulated."""
COUNTERFACTUAL = "opt125m-h200"
INVENTED_TTFT = "opt125m-a100-e2e"
METRICS = (("End to end", "e2e_ms"), ("TTFT", "ttft_ms"), ("ITL, mean", "itl_ms_mean"))


def requests(_: Sequence[str]) -> str:
    """Mean request metrics over the steady repeats."""
    rows = [
        [title, config, f"{real:.2f} ms", f"{simulated:.2f} ms", _error(simulated, real, directory)]
        for title, field in METRICS
        for directory, (_, config) in RUNS.items()
        if field in _published(directory)
        for real, simulated in [_means(directory, field)]
    ]
    return table(["mean of 3 steady repeats", "config", "reference", "simulated", "error"], rows)


def repeats(arguments: Sequence[str]) -> str:
    """Each steady repeat of one sample."""
    (directory,) = arguments
    rows = [
        [str(one["repeat"]), *(text for field in _published(directory) for text in _pair(one[field]))]
        for one in _compared(directory)["requests"]
    ]
    titles = [title for title, field in METRICS if field in _published(directory)]
    headings = [f"{title}, {kind} [ms]" for title in titles for kind in ("measured", "simulated")]
    return table(["repeat", *headings], rows)


def steps(_: Sequence[str]) -> str:
    """Errors by step, and how much of the GPU's time has a simulated duration."""
    rows = []
    for directory, (_, config) in RUNS.items():
        summary = _compared(directory)["summary"]
        coverage = _json(directory, "simulated_timeline")["summary"]["simulation"]["coverage"]
        sources = _sources(directory)
        no_reference = directory == COUNTERFACTUAL
        rows.append(
            [
                config,
                f"{coverage['simulated_kernels']:,} of {coverage['kernels']:,}",
                f"{coverage['gpu_time_fraction']:.2%}",
                ", ".join(f"{count:,} {name}" for name, count in sources.items()),
                "–" if no_reference else f"{summary['wall_ns']['mean_abs_error_pct']:.2f} %",
                "–" if no_reference else f"{summary['gpu_busy_ns']['mean_abs_error_pct']:.2f} %",
            ]
        )
    headings = ["config", "kernels", "GPU time covered", "durations", "step error", "GPU-busy error"]
    return table(headings, rows)


def _published(directory: str) -> list[str]:
    """The metrics whose measured values are published; the others were invented with the sample."""
    return [field for _, field in METRICS if field == "e2e_ms" or directory != INVENTED_TTFT]


def _means(directory: str, field: str) -> tuple[float, float]:
    found = [one[field] for one in _compared(directory)["requests"]]
    return fmean(one["real"] for one in found), fmean(one["simulated"] for one in found)


def _error(simulated: float, real: float, directory: str) -> str:
    return "– (counterfactual)" if directory == COUNTERFACTUAL else f"{simulated / real - 1:+.2%}"


def _pair(value: Any) -> Iterator[str]:
    yield f"{value['real']:.3f}"
    yield f"{value['simulated']:.3f}"


def _sources(directory: str) -> dict[str, int]:
    counted = Counter(
        str(one["source"]).split(":", 1)[0] for one in _json(directory, "sim_durations")["durations"]
    )
    return dict(counted.most_common())


def _compared(directory: str) -> Any:
    return _json(directory, "compare")


def _json(directory: str, name: str) -> Any:
    return json.loads(gzip.decompress((SAMPLES / directory / f"{name}.json.gz").read_bytes()))
