"""The composition root of `cascade worker`: settings, logging, client, signals, session.

`run_worker` is what the `cascade` command calls; `python -m cascade_worker` takes the same flags.
"""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cascade_worker.errors import SettingsError
from cascade_worker.gateway import Gateway, Identity, RetryPolicy, open_client
from cascade_worker.session import EXIT_CANNOT_START, Stop, StopReason, StopSwitch, run_session
from cascade_worker.settings import WorkerOptions, WorkerSettings, load_settings
from cascade_worker.work import do_work

_log = logging.getLogger(__name__)


def run_worker(options: WorkerOptions) -> int:
    """Run one sim as the environment says and return the process's exit code.

    0: succeeded, cancelled, or fenced off by another start. 2: something is missing. Otherwise the
    simulator's own exit code, 128 + signal for a signal, or 1 where it exited with 0 and its run was no
    success.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s cascade worker %(levelname)s: %(message)s"
    )
    # One line for every request would drown the worker's own.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        options.check()
        settings = load_settings()
    except SettingsError as error:
        sys.stderr.write(f"cascade worker: {error}\n")
        return EXIT_CANNOT_START
    return asyncio.run(_run(settings, options))


async def _run(settings: WorkerSettings, options: WorkerOptions) -> int:
    identity = Identity(sim_id=settings.sim_id, attempt=settings.attempt)
    token = settings.token.get_secret_value()
    async with open_client(base_url=settings.main_url, token=token, identity=identity) as client:
        gateway = Gateway(
            client,
            identity=identity,
            engine=options.engine,
            retry=RetryPolicy(give_up_after_s=settings.retry_for_s),
            upload_retry=RetryPolicy(give_up_after_s=settings.upload_retry_for_s),
        )
        switch = StopSwitch()
        _stop_on_signals(switch)
        return await run_session(
            gateway,
            partial(do_work, gateway, settings, options),
            switch=switch,
            heartbeat_interval_s=settings.heartbeat_interval_s,
        )


def _stop_on_signals(switch: StopSwitch) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        stop = Stop(StopReason.TERMINATED, f"the worker was stopped by {number.name}", exit_code=128 + number)
        loop.add_signal_handler(number, switch.set, stop)


def parse_arguments(arguments: Sequence[str]) -> WorkerOptions:
    """The flags of `python -m cascade_worker`; exits with 2 and a usage line for wrong ones."""
    parser = argparse.ArgumentParser(
        prog="cascade worker",
        description="Run one sim: simulate, and report to the app named in the environment.",
    )
    parser.add_argument(
        "--replay", type=Path, metavar="LOG", help="replay a recorded Accel-Sim log (.gz accepted)"
    )
    parser.add_argument(
        "--delay",
        type=float,
        default=0.05,
        metavar="SECONDS",
        help="pause every 200 replayed lines (default 0.05)",
    )
    parser.add_argument(
        "--replay-outputs",
        type=Path,
        metavar="DIR",
        help="copy this directory's files into the run directory as if Accel-Sim wrote them",
    )
    parser.add_argument(
        "--engine", choices=["accel-sim", "estimate"], default="accel-sim", help="what makes the numbers"
    )
    given = parser.parse_args(arguments)
    return WorkerOptions(
        replay=given.replay,
        delay_s=given.delay,
        replay_outputs=given.replay_outputs,
        estimate=given.engine == "estimate",
    )


def main() -> None:
    """Entry point of `python -m cascade_worker`."""
    sys.exit(run_worker(parse_arguments(sys.argv[1:])))
