"""Estimates one trace folder on one config, as a process: `python -m cascade_api.estimates.compute DIR CONFIG...`.

Prints a JSON list of kernels. A process, because the model is pure Python and would hold up every route.
"""

import sys
from pathlib import Path

from cascade_estimate import EstimateError, GpuSpec, iter_estimates
from pydantic import TypeAdapter

from cascade_api.estimates.rows import EstimatedKernel

KERNELS: TypeAdapter[list[EstimatedKernel]] = TypeAdapter(list[EstimatedKernel])


def main(directory: str, configs: list[str]) -> int:
    """Print the estimates; 1 with the reason on stderr."""
    try:
        texts = [Path(config).read_text(encoding="latin-1") for config in configs]
        spec = GpuSpec.from_config(texts[0], "\n".join(texts[1:]))
        kernels = [
            EstimatedKernel(
                kernel_name=found.header.name,
                cycles=found.cycles,
                low_cycles=found.low,
                high_cycles=found.high,
                bottleneck=found.bottleneck,
                notes=list(found.notes),
            )
            for found in iter_estimates(Path(directory), spec)
        ]
    except (EstimateError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(KERNELS.dump_json(kernels))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
