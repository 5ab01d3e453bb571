"""The command that each sim of the browser tests runs: the trace's name says which engine to be.

`live-*` replays the bundled log at a pace that can be watched, `endless-*` so slowly that somebody cancels it,
`failing-*` ends at once with code 3; anything else is estimated.
"""

import os
import sys
from pathlib import Path

REPLAY_LOG = Path(__file__).parents[2] / "examples" / "replay" / "rtx3070-babelstream.log.gz"
DELAYS_S = {"live": "0.06", "endless": "5"}


def main() -> None:
    """Become the worker that the trace's name asks for."""
    kind = Path(os.environ["CASCADE_TRACE_DIR"]).name.split("-")[0]
    if kind == "failing":
        sys.stderr.write("simulator: this trace is made to fail\n")
        raise SystemExit(3)
    engine = (
        ["--replay", str(REPLAY_LOG), "--delay", DELAYS_S[kind]]
        if kind in DELAYS_S
        else ["--engine", "estimate"]
    )
    os.execv(sys.executable, [sys.executable, "-m", "cascade_worker", *engine])


if __name__ == "__main__":
    main()
