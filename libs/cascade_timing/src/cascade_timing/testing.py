"""For tests: small timelines as parsed JSON, the sample data sets, and a way into results of unknown shape."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cascade_timing.fields import JsonObject, Number
from cascade_timing.io import read_durations, read_json, read_mapping, read_timeline
from cascade_timing.matching import KernelDuration, MappedKernel
from cascade_timing.timeline import Timeline


def kernel_row(seq: int, duration_ns: Number, start_offset_ns: Number, name: str = "k") -> JsonObject:
    """One entry of a step's `kernels`. [ns]"""
    return {
        "seq": seq,
        "name": name,
        "grid": "24x1x1",
        "block": "128x1x1",
        "duration_ns": duration_ns,
        "start_offset_ns": start_offset_ns,
    }


def step_row(
    step: int,
    *,
    wall_ns: Number,
    busy_ns: Number | None = None,
    kernels: Sequence[JsonObject] = (),
    repeat: int = 0,
    warmup: bool = False,
    kind: str = "decode",
    start_ns: Number | None = None,
    gap_ns: Number | None = None,
    profiled_wall_ns: Number | None = None,
) -> JsonObject:
    """One entry of `steps`; the end follows from start and wall. [ns]"""
    end_ns = None if start_ns is None else start_ns + wall_ns
    return {
        "step": step,
        "repeat": repeat,
        "warmup": warmup,
        "kind": kind,
        "num_reqs": 1,
        "num_scheduled_tokens": 6 if kind == "prefill" else 1,
        "baseline_wall_ns": wall_ns,
        "profiled_wall_ns": profiled_wall_ns,
        "gpu_busy_ns": busy_ns,
        "cuda_api_ns": 1000,
        "host_ns": None if busy_ns is None else wall_ns - busy_ns,
        "kernels": list(kernels),
        "baseline_wall_start_ns": start_ns,
        "baseline_wall_end_ns": end_ns,
        "baseline_gap_before_ns": gap_ns,
        "profiled_wall_start_ns": None,
        "profiled_wall_end_ns": None,
        "profiled_gap_before_ns": None,
    }


def request_row(repeat: int = 0, *, warmup: bool = False, **fields: object) -> JsonObject:
    """One entry of `requests`; the measured latencies are null unless given."""
    unmeasured = dict.fromkeys(["queued_ms", "ttft_ms", "itl_ms_mean", "itl_ms_p50", "e2e_ms"])
    return {"repeat": repeat, "warmup": warmup, **unmeasured, "num_output_tokens": 4, **fields}


def timeline_document(steps: Sequence[JsonObject] = (), requests: Sequence[JsonObject] = ()) -> JsonObject:
    """A whole timeline."""
    return {"meta": {"run_name": "test"}, "steps": list(steps), "requests": list(requests), "summary": {}}


def durations_document(*rows: tuple[int, int, int, Number]) -> JsonObject:
    """A durations file of (repeat, step, seq, duration in ns) rows."""
    return {
        "gpu_config": "SM90_H100",
        "core_clock_mhz": 1980,
        "durations": [
            {"repeat": repeat, "step": step, "seq": seq, "duration_ns": duration_ns}
            for repeat, step, seq, duration_ns in rows
        ],
    }


def at(document: object, *path: str | int) -> object:
    """The value at a path of keys and indices, such as `at(result, "steps", 0, "wall_ns")`."""
    for part in path:
        if isinstance(part, str):
            assert isinstance(document, Mapping), f"{part!r} of a {type(document).__name__}"
            document = document[part]
        else:
            assert isinstance(document, Sequence), f"[{part}] of a {type(document).__name__}"
            document = document[part]
    return document


def number_at(document: object, *path: str | int) -> Number:
    """The number at a path; fails if there is anything else."""
    value = at(document, *path)
    assert isinstance(value, int | float), f"{path} is {value!r}"
    return value


def rows_at(document: object, *path: str | int) -> list[Mapping[str, object]]:
    """The list of objects at a path."""
    value = at(document, *path)
    assert isinstance(value, list), f"{path} is {value!r}"
    return value


@dataclass(frozen=True)
class Sample:
    """One GPU's data set: the measured timeline, and what simulating a config made of it."""

    timeline_dir: Path
    result_dir: Path

    @property
    def timeline(self) -> Timeline:
        return read_timeline(self.timeline_dir / "corrected_timeline.json.gz")

    @property
    def mapping(self) -> tuple[MappedKernel, ...]:
        return read_mapping(self.timeline_dir / "kernel_mapping.json")

    @property
    def durations(self) -> tuple[KernelDuration, ...]:
        return read_durations(self.result_dir / "sim_durations.json.gz")

    @property
    def representatives(self) -> list[tuple[int, str, int]]:
        """(uid, name, cycles) of the kernels that were simulated."""
        with (self.result_dir / "sim_kernels.csv").open(newline="") as file:
            return [(int(row["uid"]), row["name"], int(row["gpu_sim_cycle"])) for row in csv.DictReader(file)]

    def expected(self, name: str) -> JsonObject:
        document = read_json(self.result_dir / name)
        assert isinstance(document, dict)
        return document
