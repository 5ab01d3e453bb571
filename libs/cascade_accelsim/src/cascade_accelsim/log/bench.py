"""How fast logs are parsed, measured in a process of its own: `cascade bench parse FILE`.

The figures stand beside their limit, the bare read of the same file (for a `.gz` the unpacking). The bar is 60 MB of
log a CPU-second with every key, in under 64 MB (design, section 7).
"""

import json
import re
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from cascade_accelsim.log.files import PIECE_BYTES, log_pieces, open_log
from cascade_accelsim.log.parser import LogParser


@dataclass(frozen=True, slots=True)
class ParseBenchResult:
    """One run over one file. Times are seconds of user and system CPU of the measuring process, except `wall_s`."""

    bytes: int
    """Of the log as text, unpacked. [B]"""
    lines: int
    kernels: int
    keys: int
    """Pairs in all blocks together."""
    cpu_s: float
    """Reading, decoding and parsing. [s]"""
    wall_s: float
    peak_rss_bytes: int
    """Of the whole process, the interpreter's own 10 MB or so included. [B]"""
    read_cpu_s: float
    """The bare read. [s]"""

    @property
    def mb_per_cpu_s(self) -> float:
        """Millions of bytes of log a CPU-second; 0 for a file too small to measure. [MB/s]"""
        return self.bytes / self.cpu_s / 1e6 if self.cpu_s > 0 else 0.0


def bench_parse(path: Path) -> ParseBenchResult:
    """Measure in a fresh interpreter, so that nothing else this process has loaded counts.

    Raises OSError for a file that cannot be read, CalledProcessError when the measurement itself fails.
    """
    path.open("rb").close()
    command = [sys.executable, "-m", "cascade_accelsim.log.bench", str(path)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout
    return ParseBenchResult(**json.loads(output))


def measure(path: Path) -> ParseBenchResult:
    """Measure in this process. `peak_rss_bytes` then holds whatever else it has loaded."""
    started = time.process_time()
    size = _bare_read(path)
    read_cpu_s = time.process_time() - started

    keys = 0
    wall, cpu = time.perf_counter(), time.process_time()
    parser = LogParser()
    for piece in log_pieces(path):
        for block in parser.feed_text(piece):
            keys += len(block.stats)
    for block in parser.finish():
        keys += len(block.stats)
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - wall
    return ParseBenchResult(
        bytes=size,
        lines=parser.progress.lines,
        kernels=parser.progress.kernels_done,
        keys=keys,
        cpu_s=cpu_s,
        wall_s=wall_s,
        peak_rss_bytes=_peak_rss_bytes(),
        read_cpu_s=read_cpu_s,
    )


def _bare_read(path: Path) -> int:
    size = 0
    with open_log(path) as file:
        while data := file.read(PIECE_BYTES):
            size += len(data)
    return size


def _peak_rss_bytes() -> int:
    """Linux's own figure for this program; `getrusage` also remembers the process that started it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        status = ""
    if peak := re.search(r"VmHWM:\s*(\d+) kB", status):
        return int(peak[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(measure(Path(sys.argv[1])))) + "\n")
