"""The analytical estimate in the simulator's place: the same arguments, and a log in the same form on stdout.

Run as a process of its own, `python -m cascade_worker.estimator -trace LIST -config FILE ...`, so that it
streams, stops and fails like a simulator does. The log says that no simulator ran, and heartbeats carry
`engine: estimate`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cascade_estimate import MODEL_VERSION, EstimateError, GpuSpec, accelsim_log, iter_estimates

BLOCK_END = "gpgpu_silicon_slowdown"
"""Begins the last line of a kernel's block; what is complete is shown at once."""


def command_line(kernels_list: Path, configs: Sequence[str]) -> list[str]:
    """The estimate's command for one trace; `configs` are file names in the run directory."""
    # -P: a config that happens to be called like a module must not be imported.
    command = [sys.executable, "-P", "-m", "cascade_worker.estimator", "-trace", str(kernels_list)]
    for config in configs:
        command += ["-config", config]
    return command


def main(arguments: Sequence[str]) -> int:
    """Print the log; 0, or 1 with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="cascade_worker.estimator")
    parser.add_argument("-trace", type=Path, required=True)
    parser.add_argument("-config", type=Path, action="append", required=True)
    given = parser.parse_args(arguments)
    try:
        texts = [path.read_text(encoding="latin-1") for path in given.config]
        spec = GpuSpec.from_config(texts[0], "\n".join(texts[1:]))
        for line in accelsim_log(iter_estimates(given.trace, spec), spec, MODEL_VERSION):
            sys.stdout.write(line + "\n")
            if line.startswith(BLOCK_END):
                sys.stdout.flush()
        sys.stdout.flush()
    except (EstimateError, OSError) as error:
        sys.stdout.flush()
        sys.stderr.write(f"cascade-estimate: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
