"""A post-processor that waits for a file: `slow_postprocessor.py GO_ON <traces> -j <cpus>`."""

import sys
import time
from pathlib import Path


def main() -> int:
    go_on, traces = Path(sys.argv[1]), Path(sys.argv[2])
    raw = sorted(traces.glob("kernel-*.trace"))
    for path in raw:
        print(f"Processing file {path}", flush=True)
        path.with_suffix(".traceg").write_bytes(path.read_bytes())
        while not go_on.exists():
            time.sleep(0.02)
    (traces / "kernelslist.g").write_text("".join(f"{path.stem}.traceg\n" for path in raw), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
