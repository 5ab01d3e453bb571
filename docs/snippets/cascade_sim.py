"""Run any command as a Cascade sim: its output becomes the sim's log. Standard library only.

    CASCADE_SIM_CMD="python3 cascade_sim.py accel-sim.out -trace ... -config ..."
"""

import io
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

SIM = f"{os.environ['CASCADE_MAIN_URL']}/api/sims/{os.environ['CASCADE_SIM_ID']}"
HEADERS = {
    "Authorization": f"Bearer {os.environ.get('CASCADE_TOKEN', '')}",
    "Content-Type": "application/json",
}
if attempt := os.environ.get("CASCADE_ATTEMPT"):
    HEADERS["X-Cascade-Attempt"] = attempt  # lets the app tell a second start of this sim

BEAT_EVERY_S = 5
CHUNK_LINES = 200
CHUNK_EVERY_S = 0.5
TRY_FOR_S = 600

stop = threading.Event()  # set when the app says that the sim is cancelled


def send(path, body):
    """POST until it is answered. A 4xx cannot be cured by trying again, so it ends the program."""
    request = urllib.request.Request(f"{SIM}/{path}", json.dumps(body).encode(), HEADERS, method="POST")
    give_up_at = time.monotonic() + TRY_FOR_S
    pause = 0.5
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise
        except OSError:
            pass
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{path} was not answered for {TRY_FOR_S} s")
        time.sleep(pause)
        pause = min(pause * 2, 30)


def beat(state, **more):
    if send("heartbeat", {"state": state, **more})["cancel"]:
        stop.set()


def keep_beating(process):
    while process.poll() is None:
        beat("running")
        if stop.is_set():
            process.terminate()
        stop.wait(BEAT_EVERY_S)


def forward(stream):
    """Send the lines as numbered chunks, in order."""
    seq, lines, sent_at = 0, [], time.monotonic()
    for line in stream:
        lines.append(line.rstrip("\n"))
        if len(lines) >= CHUNK_LINES or time.monotonic() - sent_at > CHUNK_EVERY_S:
            send("logs", {"seq": seq, "lines": lines})
            seq, lines, sent_at = seq + 1, [], time.monotonic()
    if lines:
        send("logs", {"seq": seq, "lines": lines})


def main():
    beat("running")
    if stop.is_set():
        return 0
    process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    threading.Thread(target=keep_beating, args=[process], daemon=True).start()
    forward(io.TextIOWrapper(process.stdout, encoding="utf-8", errors="replace", newline="\n"))
    code = process.wait()
    if not stop.is_set():
        if code == 0:
            beat("succeeded", exit_code=0)
        else:
            beat("failed", exit_code=code, error=f"{sys.argv[1]} ended with {code}")
    return code


if __name__ == "__main__":
    sys.exit(main())
