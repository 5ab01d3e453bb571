"""The Kubernetes backend on the fake cluster, as the contract suite wants it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

from cascade_core.ports import Bucket
from kubernetes_asyncio import client

from cascade_launcher.backends.kubernetes import KubernetesBackend
from cascade_launcher.backends.kubernetes_manifest import job_name
from cascade_launcher.backends.kubernetes_settings import KubernetesSettings
from cascade_launcher.backends.remote import RemoteOptions
from cascade_launcher.testing.kubernetes import FakeCluster


class RealClock:
    """The time."""

    def now(self) -> datetime:
        """UTC, aware."""
        return datetime.now(UTC)


class KubernetesPlatform:
    """A fake cluster and backends on it."""

    def __init__(
        self, cluster: FakeCluster, api: client.ApiClient, traces: Bucket, options: RemoteOptions
    ) -> None:
        self.cluster = cluster
        self.settings = KubernetesSettings(image="cascade:test", namespace="sims", start_trouble_s=300)
        self._api = api
        self._traces = traces
        self._options = options

    @classmethod
    @asynccontextmanager
    async def opened(cls, traces: Bucket, options: RemoteOptions) -> AsyncIterator["KubernetesPlatform"]:
        """For the length of the block."""
        async with FakeCluster().serving() as cluster, cluster.api() as api:
            yield cls(cluster, api, traces, options)

    def backend(self, sim_cmd: str | None = "default") -> KubernetesBackend:
        """A backend as a newly started launcher makes it."""
        options = self._options if sim_cmd == "default" else replace(self._options, sim_cmd=sim_cmd)
        return KubernetesBackend(self._api, self.settings, options, self._traces, RealClock())

    def starts(self, sim_id: str) -> int:
        """How many Jobs were created for the sim."""
        return self.cluster.creations.count(job_name(sim_id))

    async def up(self, sim_id: str) -> None:
        """The pod runs."""
        self.cluster.run(job_name(sim_id))

    async def exit(self, sim_id: str, code: int) -> None:
        """The simulator exits."""
        self.cluster.exit(job_name(sim_id), code, output=b"hello from the simulator\nlast words\n")
