"""A custom simulator client that uses nothing but the standard library and the documented contract.

Stands for every client that somebody else wrote: no attempt header, no `engine`, urllib only, one thread that
beats while another forwards lines. Any gateway has to get along with it. Usage, with the six variables of the
contract set:

    python contract_client.py COMMAND [ARGUMENT ...]

The heartbeat pause can be shortened for tests with CONTRACT_CLIENT_PAUSE_S.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

PAUSE_S = float(os.environ.get("CONTRACT_CLIENT_PAUSE_S", "5"))
ATTEMPTS = 7


class SimApi:
    """The two calls that every simulator needs."""

    def __init__(self) -> None:
        self._base = f"{os.environ['CASCADE_MAIN_URL']}/api/sims/{os.environ['CASCADE_SIM_ID']}/"
        self._token = os.environ["CASCADE_TOKEN"]

    def send(self, path: str, body: dict[str, object]) -> dict[str, object]:
        """POST a JSON body, again and again on a 5xx or a network error, and return the reply's object."""
        request = Request(
            self._base + path,
            data=json.dumps(body).encode(),
            headers={"Authorization": "Bearer " + self._token, "Content-Type": "application/json"},
        )
        for attempt in range(ATTEMPTS):
            try:
                with urlopen(request, timeout=10) as reply:
                    content = reply.read()
            except HTTPError as error:
                if error.code < 500:
                    raise
            except (URLError, TimeoutError, ConnectionError):
                pass
            else:
                answer: dict[str, object] = json.loads(content) if content else {}
                return answer
            time.sleep(0.1 * 2**attempt)
        raise SystemExit(f"gave up on {path}")

    def beat(self, state: str, exit_code: int | None = None, error: str | None = None) -> bool:
        """Send a heartbeat; True when the sim is to stop."""
        answer = self.send("heartbeat", {"state": state, "exit_code": exit_code, "error": error})
        return answer["cancel"] is True


def run(command: Sequence[str]) -> int:
    """Run `command` as the sim's simulator."""
    api = SimApi()
    if api.beat("running"):
        return 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    over, stopped = threading.Event(), threading.Event()

    def beat_until_over() -> None:
        while not over.wait(PAUSE_S):
            if api.beat("running"):
                stopped.set()
                process.terminate()

    beating = threading.Thread(target=beat_until_over, daemon=True)
    beating.start()
    seq, lines, sent_at = 0, [], time.monotonic()
    for line in process.stdout:
        lines.append(line.decode("utf-8", errors="replace").removesuffix("\n"))
        if len(lines) == 150 or time.monotonic() - sent_at > 1:
            api.send("logs", {"seq": seq, "lines": lines})
            seq, lines, sent_at = seq + 1, [], time.monotonic()
    if lines:
        api.send("logs", {"seq": seq, "lines": lines})
    exit_code = process.wait()
    over.set()
    beating.join()
    if stopped.is_set():
        return 0
    if exit_code == 0:
        api.beat("succeeded", exit_code=0)
    else:
        api.beat("failed", exit_code=exit_code, error=f"the command ended with {exit_code}")
    return abs(exit_code)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
