"""The one shape of every benchmark's answer, and what a run costs."""

import os
import platform
import resource
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from cascade_cli.output import console, print_json


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One benchmark run. `limit` is measured in the same run; `limit_what` says what it is."""

    bench: str
    figure: float
    unit: str
    limit: float
    limit_what: str
    cpu_s: float
    wall_s: float
    peak_rss_bytes: int
    detail: dict[str, Any] = field(default_factory=dict)

    def show(self, *, as_json: bool) -> None:
        """Print the result."""
        if as_json:
            print_json(asdict(self))
            return
        share = f" ({self.figure / self.limit:.0%})" if self.limit else ""
        console.print(f"[bold]{self.bench}[/]: {self.figure:,.1f} {self.unit}")
        console.print(f"limit: {self.limit:,.1f} {self.unit}, {self.limit_what}{share}")
        console.print(
            f"cpu {self.cpu_s:.2f} s, wall {self.wall_s:.2f} s, peak {self.peak_rss_bytes / 1e6:.0f} MB"
        )
        for name, value in self.detail.items():
            console.print(f"  {name}: {_told(value)}", markup=False, highlight=False)


def _told(value: Any) -> str:
    """A detail in a line for people: nested tables only by their size."""
    match value:
        case dict() if any(isinstance(each, dict | list) for each in value.values()):
            return f"{len(value)} entries, see --json"
        case dict():
            return ", ".join(f"{name} {_told(each)}" for name, each in value.items())
        case float():
            return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
        case _:
            return str(value)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpus": os.cpu_count(),
        "cpu": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


SAMPLE_EVERY_S = 0.4


class ProcessTree:
    """CPU and memory of this process and everything it started."""

    def __init__(self) -> None:
        self._me = psutil.Process()
        self._started = time.monotonic()
        self._before = self._cpu()
        self.peak_rss_bytes = 0
        self._sampled_at = float("-inf")

    def sample(self) -> None:
        """Note the memory of the moment: the proportional share, so that shared pages count once.

        Reading it costs milliseconds a process, so what calls this in a loop is answered a few times a second only.
        """
        if time.monotonic() - self._sampled_at < SAMPLE_EVERY_S:
            return
        self._sampled_at = time.monotonic()
        total = 0
        for process in [self._me, *self._me.children(recursive=True)]:
            try:
                total += process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        self.peak_rss_bytes = max(self.peak_rss_bytes, total)

    def cpu_s(self) -> float:
        """CPU seconds of all of them since the start."""
        return sum(self.cpu_by_process_s().values())

    def cpu_by_process_s(self) -> dict[str, float]:
        """The same by what ran: `bench` is this process, the load and its measuring."""
        spent: dict[str, float] = {}
        for pid, (name, cpu) in self._cpu().items():
            spent[name] = spent.get(name, 0.0) + cpu - self._before.get(pid, (name, 0.0))[1]
        return {name: round(cpu, 2) for name, cpu in sorted(spent.items(), key=lambda each: -each[1])}

    def wall_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def _cpu(self) -> dict[int, tuple[str, float]]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        found = {self._me.pid: ("bench", own.ru_utime + own.ru_stime)}
        for process in self._me.children(recursive=True):
            try:
                times = process.cpu_times()
                found[process.pid] = (_what_runs(process.cmdline()), times.user + times.system)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found


def _what_runs(command: list[str]) -> str:
    """`api` for `python -m cascade_api.main`, else the program's name."""
    for word in command:
        if word.startswith("cascade_"):
            return word.partition(".")[0].removeprefix("cascade_")
    return Path(command[0]).name.partition(":")[0] if command and command[0] else "?"


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the sorted values do not exceed; 0 for none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
