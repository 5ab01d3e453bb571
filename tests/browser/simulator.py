"""The command that each sim of the browser tests runs: the trace's name says what it does.

`live-*` replays the bundled log at a pace that can be watched, `endless-*` so slowly that somebody cancels it,
`held-*` up to its middle and on once the trace's folder holds `go on`. `failing-*` ends at once with code 3.
`halfway-*` stands still after three kernels of that log, which it says were replayed (`halfway-replayed`) or simulated.
Anything else is estimated.
"""

import gzip
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

REPLAY_LOG = Path(__file__).parents[2] / "examples" / "replay" / "rtx3070-babelstream.log.gz"
HELD_REPLAY = Path(__file__).parents[1] / "crash" / "held_replay.py"
DELAYS_S = {"live": "0.06", "endless": "5"}
LINES_OF_THREE_KERNELS = 5600
CHUNK_LINES = 400
HEARTBEAT_S = 2.0
PATIENCE_S = 60.0
RETRY_S = 0.5


def main() -> None:
    """Become the sim that the trace's name asks for."""
    trace = Path(os.environ["CASCADE_TRACE_DIR"])
    kind, _, variant = trace.name.partition("-")
    if kind == "failing":
        sys.stderr.write("simulator: this trace is made to fail\n")
        raise SystemExit(3)
    if kind == "halfway":
        stand_halfway("replay" if variant == "replayed" else "accel-sim")
        return
    if kind == "held":
        program = [str(HELD_REPLAY), str(trace / "go on"), "--replay", str(REPLAY_LOG)]
    elif kind in DELAYS_S:
        program = ["-m", "cascade_worker", "--replay", str(REPLAY_LOG), "--delay", DELAYS_S[kind]]
    else:
        program = ["-m", "cascade_worker", "--engine", "estimate"]
    os.execv(sys.executable, [sys.executable, *program])


def stand_halfway(engine: str) -> None:
    """Send a part of the log, then live on until somebody stops this process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    lines = gzip.decompress(REPLAY_LOG.read_bytes()).decode().split("\n")[:LINES_OF_THREE_KERNELS]
    alive = {"state": "running", "engine": engine}
    post("heartbeat", alive)
    for seq, start in enumerate(range(0, len(lines), CHUNK_LINES)):
        post("logs", {"seq": seq, "lines": lines[start : start + CHUNK_LINES]})
    while not json.loads(post("heartbeat", alive))["cancel"]:
        time.sleep(HEARTBEAT_S)


def post(what: str, body: object) -> bytes:
    """Tell the app, again while it does not answer or says 503; returns its answer."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return post_once(what, body)
        except OSError as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or time.monotonic() > until:
                raise
            time.sleep(RETRY_S)


def post_once(what: str, body: object) -> bytes:
    """Tell the app; returns its answer."""
    request = urllib.request.Request(
        f"{os.environ['CASCADE_MAIN_URL']}/api/sims/{os.environ['CASCADE_SIM_ID']}/{what}",
        data=json.dumps(body).encode(),
        headers={
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ['CASCADE_TOKEN']}",
            "X-Cascade-Attempt": f"{os.environ['CASCADE_ATTEMPT']}.here",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        answer: bytes = reply.read()
    return answer


if __name__ == "__main__":
    main()
