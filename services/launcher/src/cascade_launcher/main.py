"""The launcher as a process: settings, connections, the backend, leadership, and an orderly end."""

import asyncio
import os
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime

import structlog
from cascade_core import lifecycle, telemetry
from cascade_core.errors import LogUnavailable
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.lease import TRY_EVERY_S, kept, try_acquire
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.metrics import serve_metrics
from cascade_core.ports import Bucket
from cascade_core.s3 import bucket
from cascade_core.settings import load
from cascade_core.tasks import end, passed
from nats.aio.client import Client

from cascade_launcher.backends.local import STOPPED_ERROR, LocalBackend, LocalOptions
from cascade_launcher.backends.protocol import Backend, LaunchError
from cascade_launcher.backends.remote import RemoteOptions
from cascade_launcher.reactor import Reactor
from cascade_launcher.settings import LauncherSettings
from cascade_launcher.term import Timing

_logger = structlog.get_logger(__name__)

LEASE = "launcher"
RETRY_TERM_S = 0.5
GIVE_UP_WITHIN_S = 2.0
"""What telling the log may take at an orderly stop; ending the sims takes up to 5 s more."""


class SystemClock:
    """The time of this machine."""

    def now(self) -> datetime:
        """UTC, aware."""
        return datetime.now(UTC)


def main() -> int:
    """Run the launcher until a signal; returns the exit code."""
    settings = load(LauncherSettings)
    telemetry.configure(settings, service="launcher")
    return lifecycle.run(lambda stop: serve(settings, stop), service="launcher")


async def serve(settings: LauncherSettings, stop: asyncio.Event) -> None:
    """Lead, or wait to lead, until `stop` is set; then end local sims and leave. Raises LogUnavailable at the
    start."""
    serve_metrics(settings.metrics_port, settings.metrics_host)
    async with connected(settings, name="launcher") as client:
        await provision(client, replicas=settings.nats_replicas)
        async with opened_backend(settings) as backend:
            await _Leadership(settings, client, backend).until(stop)


@asynccontextmanager
async def opened_backend(settings: LauncherSettings) -> AsyncIterator[Backend]:
    """The backend that `CASCADE_SIMS` names. Raises LaunchError where what it needs is missing."""
    async with bucket.opened(settings) as traces:
        match settings.sims:
            case "local":
                yield _local(settings, traces)
            case "kubernetes":
                async with _kubernetes(settings, traces) as backend:
                    yield backend
            case "sail":
                yield _sail(settings, traces)
            case "modal":
                yield await _modal(settings, traces)


def _local(settings: LauncherSettings, traces: Bucket) -> LocalBackend:
    options = LocalOptions(
        sim_cmd=settings.sim_cmd,
        main_url=settings.public_url,
        token=settings.token.get_secret_value(),
        sim_tokens=settings.sim_tokens,
        data_dir=settings.data_dir,
        accelsim_dir=settings.accelsim_dir,
        bucket_name=settings.s3_bucket,
        prefix=settings.s3_prefix,
        keep_sim_files_days=settings.keep_sim_files_days,
    )
    return LocalBackend(options, traces, os.environ)


@asynccontextmanager
async def _kubernetes(settings: LauncherSettings, traces: Bucket) -> AsyncIterator[Backend]:
    with _extra("kubernetes"):
        from cascade_launcher.backends.kubernetes import KubernetesBackend, opened_api
    from cascade_launcher.backends.kubernetes_settings import KubernetesSettings

    own = load(KubernetesSettings)
    async with opened_api() as api:
        yield KubernetesBackend(api, own, _remote(settings), traces, SystemClock())


def _sail(settings: LauncherSettings, traces: Bucket) -> Backend:
    with _extra("sail"):
        from cascade_launcher.backends.sail import SailBackend, SailSettings

    return SailBackend(load(SailSettings), _remote(settings), traces, data_dir=settings.data_dir)


async def _modal(settings: LauncherSettings, traces: Bucket) -> Backend:
    with _extra("modal"):
        import modal

        from cascade_launcher.backends.modal import ModalBackend
    from cascade_launcher.backends.modal_settings import ModalSettings

    own = load(ModalSettings)
    try:
        client = await modal.Client.from_env.aio()
    except modal.exception.Error as error:
        raise LaunchError(
            f"CASCADE_SIMS=modal: {error} Set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or run `modal setup`."
        ) from error
    return ModalBackend(client, own, _remote(settings), traces)


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """Importing what the extra `name` of this package brings. Raises LaunchError where it was not installed."""
    try:
        yield
    except ImportError as error:
        raise LaunchError(
            f"CASCADE_SIMS={name} needs a library that is not installed ({error.name}). "
            f"Install cascade-launcher[{name}], as in `uv run --extra {name} cascade serve`."
        ) from error


def _remote(settings: LauncherSettings) -> RemoteOptions:
    return RemoteOptions(
        sim_cmd=settings.sim_cmd,
        main_url=settings.public_url,
        token=settings.token.get_secret_value(),
        sim_tokens=settings.sim_tokens,
        accelsim_dir=settings.accelsim_dir,
        bucket_name=settings.s3_bucket,
        prefix=settings.s3_prefix,
        s3_endpoint=settings.s3_endpoint,
        s3_region=settings.s3_region,
    )


class _Leadership:
    """Leadership, taken and lost and taken again, with one backend throughout."""

    def __init__(self, settings: LauncherSettings, client: Client, backend: Backend) -> None:
        self._client = client
        self._backend = backend
        self._timing = Timing(
            heartbeat_timeout_s=settings.heartbeat_timeout_s, launch_timeout_s=settings.launch_timeout_s
        )
        self._holder = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    async def until(self, stop: asyncio.Event) -> None:
        """Lead whenever nobody else does, until `stop` is set; then end the local sims.

        Raises only defects, and Corrupt where stored data cannot be read.
        """
        try:
            while not stop.is_set():
                lease = await try_acquire(self._client, LEASE, self._holder)
                if lease is None:
                    await passed(stop, within_s=TRY_EVERY_S)
                    continue
                async with kept(lease):
                    await self._one_term(lease.lost, stop)
                await passed(stop, within_s=RETRY_TERM_S)
        finally:
            # Without the lease, what others started may be another launcher's by now.
            await self._end_local_sims(own=True)

    async def _one_term(self, lost: asyncio.Event, stop: asyncio.Event) -> None:
        reactor = Reactor(JetStreamLog(self._client), self._backend, SystemClock(), self._timing)
        _logger.info("leads", lease=LEASE)
        leading = asyncio.create_task(reactor.run())
        ends = [asyncio.create_task(lost.wait()), asyncio.create_task(stop.wait())]
        try:
            await asyncio.wait([leading, *ends], return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set() and self._backend.ends_with_launcher:
                leading.cancel()
                await asyncio.sleep(
                    0
                )  # nothing is launched from here on; what is left of it may take its time
                # While the lease is held: the next leader then finds these sims over, not running.
                await _give_up_all(reactor)
                await self._end_local_sims(own=False)
        finally:
            await end(leading, *ends)
        if not leading.cancelled():
            _raise_unless_unavailable(leading)

    async def _end_local_sims(self, *, own: bool) -> None:
        if isinstance(self._backend, LocalBackend):
            async with asyncio.TaskGroup() as tasks:
                for sim_id in self._backend.known_sims(own=own):
                    tasks.create_task(self._backend.stop_for_now(sim_id, because=STOPPED_ERROR))


async def _give_up_all(reactor: Reactor) -> None:
    try:
        async with asyncio.timeout(GIVE_UP_WITHIN_S):
            await reactor.give_up_all(STOPPED_ERROR)
    except (LogUnavailable, TimeoutError) as error:
        # The log may be stopping too. The records on disk tell the next launcher.
        _logger.warning("sims end with this launcher; the log could not be told", error=str(error))


def _raise_unless_unavailable(task: "asyncio.Task[None]") -> None:
    try:
        task.result()
    except LogUnavailable as error:
        _logger.warning("the log does not answer; leadership starts over", error=str(error))


if __name__ == "__main__":  # `cascade serve` starts each service by its main module
    sys.exit(main())
