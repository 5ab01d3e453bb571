"""Modal's control plane, small but faithful: a gRPC server that the real client (modal 1.6) talks to.

What it does, and where the client says so:
- a running sandbox's name is unique in its app, a second create answers ALREADY_EXISTS (`Sandbox.create`, Raises);
  by name a running one is found, or else the newest that ended (`Sandbox.from_name`, include_terminated);
- a wait with timeout 0 tells a result or none (`SandboxImplV2.poll`); a terminated sandbox has status TERMINATED, for
  which the client says 137, a timed-out one TIMEOUT and 124 (`_result_returncode`);
- lists hold only what runs, page by page, until an empty page (`_Sandbox._list`, include_finished=False);
- secrets by name travel as ids, those from a dict inline (`_secret_sources`);
- the last log entries are asked of the app, by the sandbox's task (`tail_logs`).
"""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import modal
from cascade_core.ports import Bucket
from grpclib import GRPCError, Status
from grpclib.server import Server
from modal_proto import api_grpc, api_pb2

from cascade_launcher.backends.modal import ModalBackend
from cascade_launcher.backends.modal_settings import ModalSettings
from cascade_launcher.backends.remote import RemoteOptions

PAGE = 2
Result = api_pb2.GenericResult


@dataclass(slots=True)
class FakeSandbox:
    """One sandbox. Nothing runs: tests say what its simulator does."""

    sandbox_id: str
    name: str
    command: list[str]
    environment: dict[str, str]
    tags: dict[str, str]
    definition: Any
    result: Any = field(default_factory=Result)
    output: list[str] = field(default_factory=list)

    @property
    def is_running(self) -> bool:
        """Whether it has no result yet."""
        return bool(self.result.status == Result.GENERIC_STATUS_UNSPECIFIED)


class FakeModal:
    """One workspace."""

    def __init__(self) -> None:
        self.sandboxes: dict[str, FakeSandbox] = {}
        self.secrets: dict[str, dict[str, str]] = {}
        self.images: list[list[str]] = []
        self.refuse: Status | None = None
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[modal.Client]:
        """Serve on loopback and yield a real client of it."""
        server = Server([_servicer(self)])
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        await server.start(sock=listening)
        client = modal.Client(f"http://127.0.0.1:{port}", api_pb2.CLIENT_TYPE_CLIENT, ("ak-test", "as-test"))
        try:
            async with client:
                yield client
        finally:
            server.close()
            await server.wait_closed()

    def by_name(self, name: str) -> FakeSandbox:
        """The newest sandbox that bore `name`."""
        return [sandbox for sandbox in self.sandboxes.values() if sandbox.name == name][-1]

    # ---- what the client may ask, each `(request) -> reply`

    def client_hello(self, _: object) -> object:
        return api_pb2.ClientHelloResponse()

    def auth_token_get(self, _: object) -> object:
        # The client reads when it expires from the token's middle part.
        claims = base64.urlsafe_b64encode(b'{"exp": 4102444800}').rstrip(b"=").decode()
        return api_pb2.AuthTokenGetResponse(token=f"e30.{claims}.")

    def environment_get_or_create(self, _: object) -> object:
        settings = api_pb2.EnvironmentSettings(image_builder_version="2025.06")
        return api_pb2.EnvironmentGetOrCreateResponse(
            environment_id="en-1", metadata=api_pb2.EnvironmentMetadata(name="main", settings=settings)
        )

    def app_get_or_create(self, _: object) -> object:
        return api_pb2.AppGetOrCreateResponse(app_id="ap-1")

    def image_get_or_create(self, request: Any) -> object:
        self.images.append(list(request.image.dockerfile_commands))
        return api_pb2.ImageGetOrCreateResponse(
            image_id="im-1", result=Result(status=Result.GENERIC_STATUS_SUCCESS)
        )

    def secret_get_or_create(self, request: Any) -> object:
        if request.deployment_name:
            if request.deployment_name not in self.secrets:
                raise GRPCError(Status.NOT_FOUND, f"Secret '{request.deployment_name}' not found")
            return api_pb2.SecretGetOrCreateResponse(secret_id=f"st-{request.deployment_name}")
        raise GRPCError(Status.UNIMPLEMENTED, "a Secret from a dict travels inline")

    def sandbox_create(self, request: Any) -> object:
        name = request.definition.name
        if any(one.name == name and one.is_running for one in self.sandboxes.values()):
            raise GRPCError(Status.ALREADY_EXISTS, f"Sandbox '{name}' already exists")
        environment: dict[str, str] = {}
        for source in request.secret_sources:
            environment |= (
                self.secrets[source.secret_id.removeprefix("st-")]
                if source.secret_id
                else dict(source.env.contents)
            )
        tags = {tag.tag_name: tag.tag_value for tag in request.tags}
        sandbox_id = f"sb-{len(self.sandboxes)}"
        self.sandboxes[sandbox_id] = FakeSandbox(
            sandbox_id, name, list(request.definition.entrypoint_args), environment, tags, request.definition
        )
        return api_pb2.SandboxCreateV2Response(sandbox_id=sandbox_id, task_id=f"ta-{sandbox_id}")

    def sandbox_get_task_id(self, request: Any) -> object:
        return api_pb2.SandboxGetTaskIdResponse(task_id=f"ta-{request.sandbox_id}")

    def sandbox_get_from_name(self, request: Any) -> object:
        named = [one for one in self.sandboxes.values() if one.name == request.sandbox_name]
        found = [one for one in named if one.is_running] or (named[-1:] if request.include_terminated else [])
        if not found:
            raise GRPCError(Status.NOT_FOUND, f"Sandbox '{request.sandbox_name}' not found")
        return api_pb2.SandboxGetFromNameResponse(
            sandbox_id=found[0].sandbox_id, metadata=api_pb2.SandboxHandleMetadata(app_id="ap-1")
        )

    def sandbox_tags_get(self, request: Any) -> object:
        tags = self._sandbox(request.sandbox_id).tags
        return api_pb2.SandboxTagsGetResponse(
            tags=[api_pb2.SandboxTag(tag_name=name, tag_value=value) for name, value in tags.items()]
        )

    def sandbox_wait(self, request: Any) -> object:
        assert request.timeout == 0, "the launcher polls"
        return api_pb2.SandboxWaitResponse(result=self._sandbox(request.sandbox_id).result)

    def sandbox_terminate(self, request: Any) -> object:
        sandbox = self._sandbox(request.sandbox_id)
        if sandbox.is_running:
            sandbox.result = Result(status=Result.GENERIC_STATUS_TERMINATED)
        return api_pb2.SandboxTerminateResponse()

    def sandbox_list(self, request: Any) -> object:
        assert request.app_id == "ap-1"
        assert not request.include_finished
        running = [one for one in self.sandboxes.values() if one.is_running]
        infos = [
            api_pb2.SandboxInfo(id=one.sandbox_id, created_at=1000.0 - number)
            for number, one in enumerate(running)
        ]
        before = request.before_timestamp or 1e9
        return api_pb2.SandboxListResponse(sandboxes=[one for one in infos if one.created_at < before][:PAGE])

    def app_fetch_logs(self, request: Any) -> object:
        assert request.app_id == "ap-1"
        lines = self._sandbox(request.task_id.removeprefix("ta-")).output[-request.limit :]
        items = [
            api_pb2.TaskLogs(data=line + "\n", file_descriptor=api_pb2.FILE_DESCRIPTOR_STDOUT)
            for line in lines
        ]
        return api_pb2.AppFetchLogsResponse(batches=[api_pb2.TaskLogsBatch(items=items)])

    def _sandbox(self, sandbox_id: str) -> FakeSandbox:
        if sandbox_id not in self.sandboxes:
            raise GRPCError(Status.NOT_FOUND, f"Sandbox {sandbox_id} not found")
        return self.sandboxes[sandbox_id]


_ANSWERED = {
    "ClientHello": FakeModal.client_hello,
    "AuthTokenGet": FakeModal.auth_token_get,
    "EnvironmentGetOrCreate": FakeModal.environment_get_or_create,
    "AppGetOrCreate": FakeModal.app_get_or_create,
    "ImageGetOrCreate": FakeModal.image_get_or_create,
    "SecretGetOrCreate": FakeModal.secret_get_or_create,
    "SandboxCreateV2": FakeModal.sandbox_create,
    "SandboxGetTaskIdV2": FakeModal.sandbox_get_task_id,
    "SandboxGetFromNameV2": FakeModal.sandbox_get_from_name,
    "SandboxTagsGetV2": FakeModal.sandbox_tags_get,
    "SandboxWaitV2": FakeModal.sandbox_wait,
    "SandboxTerminateV2": FakeModal.sandbox_terminate,
    "SandboxListV2": FakeModal.sandbox_list,
    "AppFetchLogs": FakeModal.app_fetch_logs,
}


def _servicer(fake: FakeModal) -> Any:
    """The client's whole service; what this fake does not answer is UNIMPLEMENTED, by name."""

    def handler(name: str) -> Callable[..., Any]:
        answer = _ANSWERED.get(name)

        async def handle(_: object, stream: Any) -> None:
            request = await stream.recv_message()
            if fake.refuse is not None and name != "ClientHello":
                raise GRPCError(fake.refuse, f"{name} refused")
            if answer is None:
                raise GRPCError(Status.UNIMPLEMENTED, name)
            await stream.send_message(answer(fake, request))

        return handle

    methods = {name: handler(name) for name in api_grpc.ModalClientBase.__abstractmethods__}
    return type("Servicer", (api_grpc.ModalClientBase,), methods)()


class ModalPlatform:
    """The Modal backend on the fake workspace, as the contract suite wants it."""

    def __init__(
        self, workspace: FakeModal, client: modal.Client, traces: Bucket, options: RemoteOptions
    ) -> None:
        self.workspace = workspace
        self.client = client
        self._traces = traces
        self._options = options

    @classmethod
    @asynccontextmanager
    async def opened(cls, traces: Bucket, options: RemoteOptions) -> AsyncIterator["ModalPlatform"]:
        """For the length of the block."""
        workspace = FakeModal()
        async with workspace.serving() as client:
            yield cls(workspace, client, traces, options)

    def backend(self, sim_cmd: str | None = "default", **settings: Any) -> ModalBackend:
        """A backend as a newly started launcher makes it."""
        options = self._options if sim_cmd == "default" else replace(self._options, sim_cmd=sim_cmd)
        own = ModalSettings(image="registry.example/cascade:1", **settings)
        return ModalBackend(self.client, own, options, self._traces)

    def starts(self, sim_id: str) -> int:
        """How many sandboxes the sim ever got."""
        return sum(1 for one in self.workspace.sandboxes.values() if one.name == f"cascade-{sim_id}")

    async def up(self, sim_id: str) -> None:
        """The simulator runs as soon as its sandbox does."""
        assert self.workspace.by_name(f"cascade-{sim_id}").is_running

    async def exit(self, sim_id: str, code: int) -> None:
        """The simulator exits."""
        sandbox = self.workspace.by_name(f"cascade-{sim_id}")
        sandbox.output = ["hello from the simulator", "last words"]
        status = Result.GENERIC_STATUS_FAILURE if code else Result.GENERIC_STATUS_SUCCESS
        sandbox.result = Result(status=status, exitcode=code)
        await asyncio.sleep(0)
