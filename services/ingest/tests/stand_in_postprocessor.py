"""Stands in for Accel-Sim's trace post-processor: the same arguments, one processed file for each raw one.

`stand_in_postprocessor.py MODE [ARGUMENT] <traces> -j <cpus>`. Modes: `ok`; `fail` prints nine lines and exits 3;
`nothing` exits 0 and leaves no list; `given FILE` writes that list; `wait FILE` goes on once FILE is there; `killed`;
`deaf FILE` is `wait` that SIGTERM does not end; `orphan FILE` exits at SIGTERM and leaves a child that is deaf.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    mode, *rest = sys.argv[1:]
    traces = Path(rest[-3])
    assert rest[-2] == "-j"
    assert int(rest[-1]) > 0
    assert not [name for name in os.environ if name.startswith("CASCADE_")]
    argument = Path(rest[0])
    match mode:
        case "fail":
            for number in range(1, 10):
                print(f"line {number}", file=sys.stdout if number % 2 else sys.stderr, flush=True)
            return 3
        case "nothing":
            return 0
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print("waits", flush=True)
            wait_for(argument)
        case "orphan":
            subprocess.Popen([sys.executable, __file__, "deaf", *rest])
            wait_for(argument)
        case "wait":
            wait_for(argument)
    names = [path.name for path in traces.iterdir() if re.fullmatch(r"kernel-.+\.trace(\.xz)?", path.name)]
    names.sort(key=lambda name: int(re.findall(r"\d+", name)[0]))
    for name in names:
        print(f"Processing file {traces / name}", flush=True)
        processed = traces / (name.split(".trace")[0] + ".traceg")
        processed.write_bytes(b"processed " + (traces / name).read_bytes())
    if mode == "given":
        shutil.copy(argument, traces / "kernelslist.g")
    else:
        lines = [name.split(".trace")[0] + ".traceg\n" for name in names]
        (traces / "kernelslist.g").write_text("".join(lines), "utf-8")
    return 0


def wait_for(file: Path) -> None:
    """Stand still until the test makes `file`; a test that is gone makes none."""
    until = time.monotonic() + 120
    while not file.exists():
        if time.monotonic() > until:
            raise SystemExit(f"{file} never came")
        time.sleep(0.02)


if __name__ == "__main__":
    raise SystemExit(main())
