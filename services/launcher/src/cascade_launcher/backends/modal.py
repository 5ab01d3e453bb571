"""Sims as Modal sandboxes, one each. Needs the extra `modal`.

A sandbox's name is unique among the running ones of its app, so two starts at once make one sandbox. A finished one
gives its name free, but is still found by it, so a sim that ended while no launcher looked is not started again.
"""

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import modal
import structlog
from cascade_core.errors import CascadeError
from cascade_core.ports import Bucket
from cascade_core.runs.state import Run
from modal import exception

from cascade_launcher import bucket_traces
from cascade_launcher.backends.modal_settings import ModalSettings
from cascade_launcher.backends.protocol import (
    BackendUnavailable,
    Ended,
    Gone,
    Launch,
    LaunchError,
    Running,
    Vital,
)
from cascade_launcher.backends.remote import RemoteOptions, split_command

_logger = structlog.get_logger(__name__)

DATA_DIR = "/data"
CALLS_AT_ONCE = 16
LOOK_EVERY_S = 1.0
GONE_WITHIN_S = 60.0
OUTPUT_WITHIN_S = 15.0
TAIL_ENTRIES = 50
_SIM_TAG = "sim-id"
_TIMED_OUT = 124
_TERMINATED = 137


class ModalBackend:
    """Runs each sim as a sandbox. Implements `Backend`."""

    poll_every_s = 15.0
    ends_with_launcher = False

    def __init__(
        self, client: modal.Client, settings: ModalSettings, options: RemoteOptions, traces: Bucket
    ) -> None:
        self._client = client
        self._settings = settings
        self._options = options
        self._traces = traces
        self._slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._app: modal.App | None = None
        self._sims: dict[str, str] = {}
        """Sim id by sandbox id, as far as it was asked for."""

    async def prepare(self, run: Run) -> None:
        """Check what can be checked once instead of in every sandbox."""
        split_command(self._options.sim_cmd)
        await bucket_traces.check(self._traces, self._options.prefix, run.trace_id)
        with _translated("launcher prepare", refused=LaunchError):
            await self._own_app()

    async def start(self, launch: Launch) -> str:
        """Create the sandbox, or find the one that the sim got before; returns its id."""
        with _translated("could not start the sim's sandbox", refused=LaunchError):
            sandbox = await self._sandbox(launch.sim_id)
            if sandbox is None:
                try:
                    sandbox = await self._create(await self._own_app(), launch)
                except exception.AlreadyExistsError as error:  # by another launcher, at this very moment
                    sandbox = await self._sandbox(launch.sim_id)
                    if sandbox is None:
                        raise BackendUnavailable("the sim's sandbox came and went; look again") from error
        return str(sandbox.object_id)

    async def stop(self, sim_id: str, *, patience_s: float = 0.0) -> None:
        """Terminate the sandbox, once its simulator has ended or patience has."""
        loop = asyncio.get_running_loop()
        with _translated("the sim's sandbox cannot be terminated"):
            sandbox = await self._sandbox(sim_id)
            if sandbox is None or await _ends(sandbox, by=loop.time() + patience_s):
                return
            await sandbox.terminate.aio()
            if not await _ends(sandbox, by=loop.time() + GONE_WITHIN_S):
                raise BackendUnavailable(f"the sandbox {sandbox.object_id} was terminated, but does not end")

    async def alive(self, sim_id: str) -> Vital:
        """How one sim fares; its output included once it ended."""
        with _translated("the sim's sandbox cannot be looked at"):
            sandbox = await self._sandbox(sim_id)
            if sandbox is None:
                return Gone()
            code = await sandbox.poll.aio()
            if code is None:
                return Running()
            return Ended(code, self._reason(code), await _output(sandbox))

    async def census(self) -> Mapping[str, Vital]:
        """Every sim whose sandbox runs. Of those that ended, `alive` tells more."""
        with _translated("the sandboxes cannot be listed"):
            app = await self._own_app()
            running = [
                sandbox async for sandbox in modal.Sandbox.list.aio(app_id=app.app_id, client=self._client)
            ]
            sims = await asyncio.gather(*(self._sim_of(sandbox) for sandbox in running))
        self._sims = {
            sandbox.object_id: sim_id
            for sandbox, sim_id in zip(running, sims, strict=True)
            if sim_id is not None
        }
        return dict.fromkeys(self._sims.values(), Running())

    async def finish(self, run_id: str) -> None:
        """Nothing was made for the run as a whole."""

    async def _own_app(self) -> modal.App:
        if self._app is None:
            self._app = await modal.App.lookup.aio(
                self._settings.app, create_if_missing=True, client=self._client
            )
        return self._app

    async def _sim_of(self, sandbox: modal.Sandbox) -> str | None:
        """The sim that a sandbox was created for; a sandbox's tags never change."""
        known = self._sims.get(sandbox.object_id)
        if known is not None:
            return known
        async with self._slots:
            try:
                tags: dict[str, str] = await sandbox.get_tags.aio()
            except exception.NotFoundError:
                return None  # it ended since it was listed
        return tags.get(_SIM_TAG)

    async def _create(self, app: modal.App, launch: Launch) -> modal.Sandbox:
        settings = self._settings
        secret = (
            modal.Secret.from_name(settings.image_secret, client=self._client)
            if settings.image_secret
            else None
        )
        memory = (
            (settings.memory_mib, settings.memory_limit_mib)
            if settings.memory_limit_mib
            else settings.memory_mib
        )
        environment = self._options.contract(launch, data_dir=DATA_DIR)
        secrets: list[modal.Secret] = []
        volumes: dict[str, modal.CloudBucketMount] = {}
        if settings.traces == "mount":
            bucket = self._options.bucket_name
            volumes[f"{DATA_DIR}/s3/{bucket}"] = self._mounted_bucket()
            key = bucket_traces.key_prefix(self._options.prefix, launch.trace_id).rstrip("/")
            environment["CASCADE_TRACE_DIR"] = f"{DATA_DIR}/s3/{bucket}/{key}"
        else:
            environment |= self._options.bucket_environment(launch, endpoint=settings.s3_endpoint)
            if settings.s3_secret is not None:
                secrets.append(modal.Secret.from_name(settings.s3_secret, client=self._client))
        # A Secret, though little of it is secret: the token must not show among a sandbox's arguments.
        secrets.append(modal.Secret.from_dict(environment))
        return await modal.Sandbox.create.aio(
            "/bin/sh",
            "-c",
            self._entry_command(),
            app=app,
            name=_name(launch.sim_id),
            tags={_SIM_TAG: launch.sim_id, "run-id": launch.run_id},
            image=modal.Image.from_registry(settings.image, secret=secret),
            secrets=secrets,
            volumes=volumes,
            timeout=settings.lifetime_s,
            cpu=settings.cpu,
            memory=memory,
            region=settings.region,
            client=self._client,
        )

    def _mounted_bucket(self) -> modal.CloudBucketMount:
        settings = self._settings
        secret = (
            modal.Secret.from_name(settings.s3_secret, client=self._client) if settings.s3_secret else None
        )
        return modal.CloudBucketMount(
            self._options.bucket_name,
            bucket_endpoint_url=settings.s3_endpoint or self._options.s3_endpoint,
            secret=secret,
            read_only=True,
            force_path_style=True,
        )

    def _entry_command(self) -> str:
        """The sandbox's script. The simulator replaces the shell, so that it gets the signals, and no bucket's keys."""
        simulator = shlex.join(split_command(self._options.sim_cmd))
        if self._settings.traces == "mount":
            return f"exec {simulator} 2>&1"
        return (
            f"{self._settings.fetch_cmd} 2>&1 || exit; "
            f"unset CASCADE_S3_ACCESS_KEY CASCADE_S3_SECRET_KEY CASCADE_S3_ENDPOINT; exec {simulator} 2>&1"
        )

    async def _sandbox(self, sim_id: str) -> modal.Sandbox | None:
        """The sandbox that bears or bore the sim's name."""
        try:
            return await modal.Sandbox.from_name.aio(
                self._settings.app, _name(sim_id), include_terminated=True, client=self._client
            )
        except exception.NotFoundError:
            return None

    def _reason(self, code: int) -> str | None:
        # The SDK gives these two numbers to a sandbox that Modal ended: modal/sandbox/_common.py, _result_returncode.
        if code == _TIMED_OUT:
            return f"its sandbox reached its lifetime of {self._settings.lifetime_s} s"
        if code == _TERMINATED:
            return "its sandbox was terminated, or ran out of memory (CASCADE_MODAL_MEMORY_MIB)"
        return None


def _name(sim_id: str) -> str:
    return f"cascade-{sim_id}"[:64]


async def _ends(sandbox: modal.Sandbox, *, by: float) -> bool:
    """Whether the sandbox has ended by a time of the loop's clock; looks at least once."""
    loop = asyncio.get_running_loop()
    while await sandbox.poll.aio() is None:
        if loop.time() >= by:
            return False
        await asyncio.sleep(LOOK_EVERY_S)
    return True


async def _output(sandbox: modal.Sandbox) -> tuple[str, ...]:
    told = ""
    try:
        async with asyncio.timeout(OUTPUT_WITHIN_S):
            async for entry in sandbox.logs.tail.aio(TAIL_ENTRIES):
                told += entry.message
    except (exception.Error, TimeoutError) as error:
        _logger.info("not all output of the sandbox", sandbox_id=sandbox.object_id, error=str(error))
    return tuple(told.split("\n"))


@contextmanager
def _translated(what: str, *, refused: type[CascadeError] = BackendUnavailable) -> Iterator[None]:
    """The SDK's errors as ours. refused: what an answer becomes that asking again would not change."""
    try:
        yield
    except exception.AuthError as error:
        raise refused(
            f"{what}: Modal refused the login ({error}). Set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET in the "
            "launcher's environment."
        ) from error
    except (exception.NotFoundError, exception.InvalidError, exception.PermissionDeniedError) as error:
        raise refused(f"{what}: Modal says: {error}") from error
    except exception.ImageBuildError as error:
        raise refused(f"{what}: Modal cannot use the image CASCADE_MODAL_IMAGE: {error}") from error
    except (exception.Error, OSError) as error:
        raise BackendUnavailable(
            f"{what}: Modal does not answer ({error or type(error).__name__})"
        ) from error
