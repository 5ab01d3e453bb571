"""A stand-in for `accel-sim.out` that takes the real arguments and behaves as a recorded run did.

Like the real one it reads its configs from the working directory and writes stdout, stderr, files, an exit
code or a fatal signal. What to play comes from `stand-in.json` beside this file, with these keys: `log` (a
recorded .log.gz), `stderr` (a file), `exit_code`, `signal` (a name; dies of it at the end), `files` (name ->
text), `big_text` (name -> bytes), `hang_after_lines` (then sits still), `ignore_sigterm`, `fork` (leaves a
child behind that holds stdout open), `pid_file` (where to note its process id), `line_pause_s` (pause after
every 100 lines).
"""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    here = Path(__file__).resolve().parent
    play = json.loads((here / "stand-in.json").read_text())
    if "pid_file" in play:
        Path(play["pid_file"]).write_text(str(os.getpid()))
    if play.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if play.get("fork"):
        child = subprocess.Popen(["sleep", "600"])
        Path(play["fork"]).write_text(str(child.pid))

    arguments = sys.argv[1:]
    assert arguments[0] == "-trace", arguments
    assert arguments[2:] == ["-config", "gpgpusim.config", "-config", "trace.config"], arguments
    for name in ("gpgpusim.config", "trace.config"):
        if not Path(name).is_file():
            print(f"GPGPU-Sim ** ERROR: Missing option '{name}'", file=sys.stderr)
            sys.exit(1)
    Path("arguments.json").write_text(json.dumps([str(Path.cwd()), *arguments]))
    if "CASCADE_TOKEN" in os.environ:
        Path("token-seen.txt").write_text("the simulator can read the token")

    out = sys.stdout.buffer
    if not Path(arguments[1]).is_file():
        out.write(b"Unable to open file: " + arguments[1].encode() + b"\n")
        out.flush()
        sys.exit(1)
    with gzip.open(play["log"]) as lines:
        for count, line in enumerate(lines, start=1):
            out.write(line)
            if count % 100 == 0 and play.get("line_pause_s"):
                out.flush()
                time.sleep(play["line_pause_s"])
            if count == play.get("hang_after_lines"):
                out.flush()
                time.sleep(3600)
    out.flush()
    Path("gpgpu_inst_stats.txt").write_text("kernel line : count latency dram_traffic\n")
    Path("checkpoint_files").mkdir()
    for name, text in play.get("files", {}).items():
        Path(name).write_text(text)
    for name, size in play.get("big_text", {}).items():
        Path(name).write_text("cycle,core,ipc\n" * (size // 15))
    if "stderr" in play:
        sys.stderr.write(Path(play["stderr"]).read_text())
        sys.stderr.flush()
    if "signal" in play:
        number = signal.Signals[play["signal"]]
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        time.sleep(60)
    sys.exit(play.get("exit_code", 0))


if __name__ == "__main__":
    main()
