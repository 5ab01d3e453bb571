"""Sims as Kubernetes Jobs, one each. Needs the extra `kubernetes` (kubernetes_asyncio)."""

import asyncio
import json
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import aiohttp
import structlog
from cascade_core.errors import CascadeError
from cascade_core.ports import Bucket, Clock
from cascade_core.runs.state import Run
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client.exceptions import ApiException

from cascade_launcher import bucket_traces
from cascade_launcher.backends.kubernetes_manifest import (
    DATA_DIR,
    OVER_LABEL,
    SIM_LABEL,
    job_manifest,
    job_name,
    selector,
)
from cascade_launcher.backends.kubernetes_settings import KubernetesSettings
from cascade_launcher.backends.kubernetes_status import failed_container, vital_of
from cascade_launcher.backends.protocol import (
    BackendUnavailable,
    Ended,
    Gone,
    Launch,
    LaunchError,
    Vital,
)
from cascade_launcher.backends.remote import RemoteOptions, split_command
from cascade_launcher.endings import lines_of

if TYPE_CHECKING:
    from kubernetes_asyncio.client import V1Job, V1JobCondition, V1Pod

_logger = structlog.get_logger(__name__)

REQUEST_TIMEOUT_S = 15
PAGE = 500
TAIL_LINES = 50
LOOK_EVERY_S = 1.0
STOP_MARGIN_S = 30.0
"""How long past its grace a pod may take to vanish before the launcher asks again."""
_AWAY = (aiohttp.ClientError, TimeoutError, OSError)


_Listing = Callable[..., Awaitable[Any]]  # the client has no types of its own


@dataclass(frozen=True, slots=True)
class _Sight:
    job: "V1Job"
    pods: "list[V1Pod]"

    @property
    def is_finished(self) -> bool:
        """Whether nothing of it runs or will run."""
        if any(one.status == "True" and one.type in ("Complete", "Failed") for one in _conditions(self.job)):
            return True
        return bool(self.pods) and not any(_is_up(pod) for pod in self.pods)


@asynccontextmanager
async def opened_api() -> AsyncIterator[client.ApiClient]:
    """A client of the cluster around this process, or else of the one that the user's kubeconfig names."""
    configuration = client.Configuration()
    configuration.client_side_validation = False  # a newer cluster's objects may lack what this client wants
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=configuration)
        else:
            await config.load_kube_config(client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        raise LaunchError(
            f"CASCADE_SIMS=kubernetes: no cluster is configured ({error}). Run the launcher in a pod with a service "
            "account, or set KUBECONFIG."
        ) from error
    async with client.ApiClient(configuration) as api:
        yield api


class KubernetesBackend:
    """Runs each sim as a Job. Implements `Backend`."""

    poll_every_s = 3.0
    ends_with_launcher = False

    def __init__(
        self,
        api: client.ApiClient,
        settings: KubernetesSettings,
        options: RemoteOptions,
        traces: Bucket,
        clock: Clock,
    ) -> None:
        self._batch = client.BatchV1Api(api)
        self._core = client.CoreV1Api(api)
        self._settings = settings
        self._options = options
        self._traces = traces
        self._clock = clock

    async def prepare(self, run: Run) -> None:
        """Check what can be checked once instead of in every pod."""
        split_command(self._options.sim_cmd)
        await bucket_traces.check(self._traces, self._options.prefix, run.trace_id)

    async def start(self, launch: Launch) -> str:
        """Create the Job, or find it created before; returns its name."""
        settings, options = self._settings, self._options
        manifest = job_manifest(
            launch,
            settings,
            sim_cmd=shlex.join(split_command(options.sim_cmd)),
            contract=options.contract(launch, data_dir=DATA_DIR),
            bucket_environment=options.bucket_environment(launch, endpoint=settings.s3_endpoint),
            token_optional=not options.token,
            own_token=options.sim_tokens and bool(options.token),
        )
        with _translated("could not start the sim's Job", refused=LaunchError):
            try:
                await self._batch.create_namespaced_job(
                    settings.namespace, manifest, _request_timeout=REQUEST_TIMEOUT_S
                )
            except ApiException as error:
                if error.status != 409:
                    raise
                _logger.info("the Job exists already", sim_id=launch.sim_id)
        return job_name(launch.sim_id)

    async def stop(self, sim_id: str, *, patience_s: float = 0.0) -> None:
        """Leave a finished Job to be looked at; delete one that still runs, and wait until its pod is gone."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        while True:
            sight = await self._sight(sim_id)
            if sight is None:
                return
            if sight.is_finished:
                await self._put_aside(sim_id)
                return
            if loop.time() >= until:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        await self._delete(sim_id)
        until = loop.time() + self._settings.grace_s + STOP_MARGIN_S
        while await self._sight(sim_id) is not None:
            if loop.time() >= until:
                raise BackendUnavailable(f"the Job {job_name(sim_id)} was deleted, but its pod does not end")
            await asyncio.sleep(LOOK_EVERY_S)

    async def alive(self, sim_id: str) -> Vital:
        """How one sim fares; its output included once it ended."""
        sight = await self._sight(sim_id)
        if sight is None:
            return Gone()
        vital = self._vital(sight)
        if isinstance(vital, Ended) and sight.pods:
            return replace(vital, output=await self._output(sight.pods[-1]))
        return vital

    async def census(self) -> Mapping[str, Vital]:
        """Every Job that the launcher is not done with, in two listings."""
        with _translated("the Jobs cannot be listed"):
            chosen = selector(self._settings)
            jobs = [job async for job in self._pages(self._batch.list_namespaced_job, chosen)]
            pods = [pod async for pod in self._pages(self._core.list_namespaced_pod, chosen)]
        pods_of: dict[str, list[V1Pod]] = {}
        for pod in pods:
            pods_of.setdefault((pod.metadata.annotations or {}).get(SIM_LABEL, ""), []).append(pod)
        census: dict[str, Vital] = {}
        for job in jobs:
            sim_id = (job.metadata.annotations or {}).get(SIM_LABEL)
            if sim_id is not None:
                census[sim_id] = self._vital(_Sight(job, pods_of.get(sim_id, [])))
        return census

    async def finish(self, run_id: str) -> None:
        """Nothing was made for the run as a whole."""

    def _vital(self, sight: _Sight) -> Vital:
        return vital_of(
            sight.job,
            sight.pods,
            now=self._clock.now(),
            trouble_for=timedelta(seconds=self._settings.start_trouble_s),
            memory_limit=self._settings.memory_limit,
        )

    async def _sight(self, sim_id: str) -> _Sight | None:
        """The Job and its pods, oldest first; None once both are gone."""
        namespace = self._settings.namespace
        with _translated("the Job cannot be read"):
            pods = [
                pod
                async for pod in self._pages(
                    self._core.list_namespaced_pod, f"batch.kubernetes.io/job-name={job_name(sim_id)}"
                )
            ]
            pods.sort(key=lambda pod: pod.metadata.creation_timestamp)
            try:
                job = await self._batch.read_namespaced_job(
                    job_name(sim_id), namespace, _request_timeout=REQUEST_TIMEOUT_S
                )
            except ApiException as error:
                if error.status != 404:
                    raise
                # A Job that was deleted in the background leaves before its pod does.
                orphan = client.V1Job(metadata=client.V1ObjectMeta(name=job_name(sim_id)))
                return _Sight(orphan, pods) if any(_is_up(pod) for pod in pods) else None
        return _Sight(job, pods)

    async def _output(self, pod: "V1Pod") -> tuple[str, ...]:
        try:
            # As raw bytes: the client would take a log that looks like JSON for JSON.
            response = await self._core.read_namespaced_pod_log(
                pod.metadata.name,
                self._settings.namespace,
                container=failed_container(pod),
                tail_lines=TAIL_LINES,
                _preload_content=False,
                _request_timeout=REQUEST_TIMEOUT_S,
            )
            raw: bytes = await response.read()
            if response.status != 200:
                _logger.info("no output of the pod", pod=pod.metadata.name, status=response.status)
                return ()
        except (ApiException, *_AWAY) as error:
            _logger.info("no output of the pod", pod=pod.metadata.name, error=str(error))
            return ()
        return lines_of(raw, whole=True)

    async def _put_aside(self, sim_id: str) -> None:
        patch = {"metadata": {"labels": {OVER_LABEL: "true"}}}
        with _translated("the finished Job cannot be marked"):
            try:
                await self._batch.patch_namespaced_job(
                    job_name(sim_id),
                    self._settings.namespace,
                    patch,
                    _request_timeout=REQUEST_TIMEOUT_S,
                    _content_type="application/merge-patch+json",
                )
            except ApiException as error:
                if error.status != 404:
                    raise

    async def _delete(self, sim_id: str) -> None:
        with _translated("the Job cannot be deleted"):
            try:
                await self._batch.delete_namespaced_job(
                    job_name(sim_id),
                    self._settings.namespace,
                    propagation_policy="Background",
                    _request_timeout=REQUEST_TIMEOUT_S,
                )
            except ApiException as error:
                if error.status != 404:
                    raise

    async def _pages(self, listing: _Listing, chosen: str) -> AsyncIterator[Any]:
        token: str | None = None
        while True:
            page = await listing(
                self._settings.namespace,
                label_selector=chosen,
                limit=PAGE,
                _request_timeout=REQUEST_TIMEOUT_S,
                **({"_continue": token} if token else {}),
            )
            for item in page.items:
                yield item
            token = page.metadata._continue if page.metadata is not None else None
            if not token:
                return


def _is_up(pod: "V1Pod") -> bool:
    return pod.status is None or pod.status.phase not in ("Succeeded", "Failed")


def _conditions(job: "V1Job") -> "list[V1JobCondition]":
    return (job.status.conditions if job.status is not None else None) or []


@contextmanager
def _translated(what: str, *, refused: type[CascadeError] = BackendUnavailable) -> Iterator[None]:
    """The client's errors as ours. refused: what an answer becomes that asking again would not change."""
    try:
        yield
    except ApiException as error:
        said = _message_of(error)
        # A quota answers 403 and may have room later; 429 and all of 5xx ask to come back.
        passing = error.status in (0, 429) or error.status >= 500 or "exceeded quota" in said
        family = BackendUnavailable if passing else refused
        hint = " Grant it in the launcher's Role." if error.status == 403 and not passing else ""
        raise family(f"{what}: Kubernetes answered {error.status}: {said}.{hint}") from error
    except _AWAY as error:
        raise BackendUnavailable(
            f"{what}: Kubernetes does not answer ({error or type(error).__name__})"
        ) from error


def _message_of(error: ApiException) -> str:
    """What a `Status` object in the answer says."""
    try:
        said = json.loads(error.body)["message"]
    except (ValueError, TypeError, KeyError):
        return str(error.reason)
    return str(said)
