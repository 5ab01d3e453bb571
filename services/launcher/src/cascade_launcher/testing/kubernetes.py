"""A Kubernetes API server's part that the launcher uses, small but faithful, over real HTTP.

What it does and where that is written down:
- objects travel as the real client's models, so that a field this fake misspells fails in the client;
- a second create of one name answers 409 with a `Status` (API conventions, "AlreadyExists");
- lists are cut at `limit` and go on by `continue` (API concepts, "Retrieving large results sets in chunks");
- a Job that is deleted in the background leaves at once, its pods by their grace (garbage collection, "Background
  cascading deletion"); a pod that is deleted while it runs ends as Failed and takes its Job along, as
  `backoffLimit: 0` and `podReplacementPolicy: Failed` have it (Jobs, "Pod failure policy");
- the log of a pod that has not started answers 400 (kubelet, "container is waiting to start").
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from kubernetes_asyncio import client

Object = dict[str, Any]

POD_GRACE_S = 0.1
"""How long a pod takes to end once its Job was deleted."""


class FakeCluster:
    """Jobs and pods of one namespace. Nothing runs: tests say what the nodes do."""

    def __init__(self) -> None:
        self.jobs: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.logs: dict[tuple[str, str], bytes] = {}
        self.creations: list[str] = []
        """The name of every Job that was really created, in order."""
        self.refuse: tuple[int, str] | None = None
        """Answer everything with this status and message."""
        self.listings = 0
        """How many listings, of Jobs or of pods, were answered."""
        self.url = ""
        self._pods_made = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FakeCluster"]:
        """Serve on a free port of loopback for the length of the block."""
        app = web.Application(middlewares=[self._refusing])
        jobs, pods = "/apis/batch/v1/namespaces/{ns}/jobs", "/api/v1/namespaces/{ns}/pods"
        app.router.add_post(jobs, self._create_job)
        app.router.add_get(jobs, self._lister(self.jobs, "JobList", "batch/v1"))
        app.router.add_get(jobs + "/{name}", self._read_job)
        app.router.add_delete(jobs + "/{name}", self._delete_job)
        app.router.add_patch(jobs + "/{name}", self._patch_job)
        app.router.add_get(pods, self._lister(self.pods, "PodList", "v1"))
        app.router.add_get(pods + "/{name}/log", self._log)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    @asynccontextmanager
    async def api(self) -> AsyncIterator[client.ApiClient]:
        """The real client, pointed at this cluster."""
        configuration = client.Configuration(host=self.url)
        configuration.client_side_validation = False
        async with client.ApiClient(configuration) as api:
            yield api

    # ---- what nodes and controllers do

    def pod_of(self, job: str) -> Object:
        """The Job's newest pod."""
        return [pod for pod in self.pods.values() if pod["metadata"]["labels"]["job-name"] == job][-1]

    def schedule(self, job: str) -> None:
        """A node takes the pod and begins with the container that fetches the trace."""
        status = self.pod_of(job)["status"]
        status["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        status["startTime"] = _now()
        status["initContainerStatuses"] = [_container("fetch-trace", {"running": {"startedAt": _now()}})]
        status["containerStatuses"] = [_container("simulator", {"waiting": {"reason": "PodInitializing"}})]

    def run(self, job: str) -> None:
        """The trace is there and the simulator runs."""
        status = self.pod_of(job)["status"]
        status["phase"] = "Running"
        status["startTime"] = _now()
        status["initContainerStatuses"] = [_container("fetch-trace", _terminated(0, "Completed"))]
        status["containerStatuses"] = [_container("simulator", {"running": {"startedAt": _now()}})]

    def wait_with(self, job: str, reason: str, message: str = "", *, container: str = "fetch-trace") -> None:
        """A container cannot start, and the kubelet keeps trying."""
        self.schedule(job)
        waiting = {"waiting": {"reason": reason, "message": message}}
        self.pod_of(job)["status"]["initContainerStatuses"] = [_container(container, waiting)]

    def exit(
        self,
        job: str,
        code: int,
        *,
        reason: str | None = None,
        output: bytes = b"",
        container: str = "simulator",
    ) -> None:
        """A container exits, the pod ends, and the Job controller notices."""
        pod = self.pod_of(job)
        if container == "simulator" and pod["status"]["phase"] == "Pending":
            self.run(job)
        key = "containerStatuses" if container == "simulator" else "initContainerStatuses"
        why = reason or ("Completed" if code == 0 else "Error")
        pod["status"][key] = [_container(container, _terminated(code, why))]
        self.logs[pod["metadata"]["name"], container] = output
        self._end_pod(pod, succeeded=code == 0)

    def evict(self, job: str, message: str) -> None:
        """The node runs short of a resource and evicts the pod."""
        pod = self.pod_of(job)
        pod["status"] |= {"reason": "Evicted", "message": message}
        pod["status"].setdefault("conditions", []).append(
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "TerminationByKubelet",
                "message": message,
            }
        )
        self._end_pod(pod, succeeded=False)

    def disrupt(self, job: str, reason: str, message: str) -> None:
        """The pod is preempted, drained or collected; its container gets a SIGTERM."""
        pod = self.pod_of(job)
        pod["status"].setdefault("conditions", []).append(
            {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
        )
        pod["status"]["containerStatuses"] = [_container("simulator", _terminated(143, "Error"))]
        self._end_pod(pod, succeeded=False, why="PodFailurePolicy")

    def delete_pod(self, job: str) -> None:
        """Somebody deletes the pod."""
        pod = self.pod_of(job)
        self._end_pod(pod, succeeded=False)
        del self.pods[pod["metadata"]["name"]]

    def _let_pods_end(self) -> None:
        """Pods whose Job was deleted reach the end of their grace."""
        for name, pod in list(self.pods.items()):
            if "deletionTimestamp" in pod["metadata"]:
                del self.pods[name]

    def _end_pod(self, pod: Object, *, succeeded: bool, why: str = "BackoffLimitExceeded") -> None:
        pod["status"]["phase"] = "Succeeded" if succeeded else "Failed"
        job = self.jobs.get(pod["metadata"]["labels"]["job-name"])
        if job is not None:
            condition = (
                {"type": "Complete", "status": "True"}
                if succeeded
                else {
                    "type": "Failed",
                    "status": "True",
                    "reason": why,
                    "message": "Job has reached the specified backoff limit",
                }
            )
            job["status"] = {"conditions": [condition]}

    # ---- the API

    @web.middleware
    async def _refusing(self, request: web.Request, handler: Callable[..., Any]) -> web.StreamResponse:
        if self.refuse is not None:
            return _status(*self.refuse)
        response: web.StreamResponse = await handler(request)
        return response

    async def _create_job(self, request: web.Request) -> web.Response:
        job: Object = await request.json()
        name = job["metadata"]["name"]
        if name in self.jobs:
            return _status(409, f'jobs.batch "{name}" already exists')
        self.creations.append(name)
        job["metadata"] |= {"creationTimestamp": _now(), "namespace": request.match_info["ns"]}
        job["status"] = {}
        self.jobs[name] = job
        self._pods_made += 1
        template = job["spec"]["template"]
        labels = template["metadata"]["labels"] | {"job-name": name, "batch.kubernetes.io/job-name": name}
        pod = {
            "metadata": {
                "name": f"{name}-{self._pods_made:05d}",
                "labels": labels,
                "annotations": template["metadata"]["annotations"],
                "creationTimestamp": _now(),
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }
        self.pods[f"{name}-{self._pods_made:05d}"] = pod
        return web.json_response(job, status=201)

    async def _read_job(self, request: web.Request) -> web.Response:
        job = self.jobs.get(request.match_info["name"])
        return _status(404, "not found") if job is None else web.json_response(job)

    async def _delete_job(self, request: web.Request) -> web.Response:
        job = self.jobs.pop(request.match_info["name"], None)
        if job is None:
            return _status(404, "not found")
        assert request.query["propagationPolicy"] == "Background"
        for pod in self.pods.values():
            if pod["metadata"]["labels"]["job-name"] == job["metadata"]["name"]:
                pod["metadata"]["deletionTimestamp"] = _now()
        asyncio.get_running_loop().call_later(POD_GRACE_S, self._let_pods_end)
        return web.json_response(job)

    async def _patch_job(self, request: web.Request) -> web.Response:
        job = self.jobs.get(request.match_info["name"])
        if job is None:
            return _status(404, "not found")
        if request.content_type not in (
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ):
            return _status(415, "a JSON patch is a list of operations")
        patch = json.loads(await request.text())
        job["metadata"]["labels"] |= patch["metadata"]["labels"]
        return web.json_response(job)

    def _lister(self, items: dict[str, Object], kind: str, version: str) -> Callable[..., Any]:
        async def handle(request: web.Request) -> web.Response:
            chosen = [one for one in items.values() if _matches(one, request.query.get("labelSelector", ""))]
            start, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 0))
            page = chosen[start : start + limit] if limit else chosen
            more = limit and start + limit < len(chosen)
            self.listings += 1
            meta = {"resourceVersion": "1"} | ({"continue": str(start + limit)} if more else {})
            return web.json_response({"kind": kind, "apiVersion": version, "metadata": meta, "items": page})

        return handle

    async def _log(self, request: web.Request) -> web.Response:
        name, container = request.match_info["name"], request.query["container"]
        output = self.logs.get((name, container))
        if output is None:
            return _status(400, f'container "{container}" in pod "{name}" is waiting to start')
        lines = output.split(b"\n")[-int(request.query["tailLines"]) - 1 :]
        return web.Response(body=b"\n".join(lines), content_type="text/plain")


def _matches(item: Object, selector: str) -> bool:
    labels = item["metadata"]["labels"]
    for term in filter(None, selector.split(",")):
        if term.startswith("!"):
            if term[1:] in labels:
                return False
        elif labels.get(term.partition("=")[0]) != term.partition("=")[2]:
            return False
    return True


def _container(name: str, state: Object) -> Object:
    return {"name": name, "state": state, "ready": False, "restartCount": 0, "image": "", "imageID": ""}


def _terminated(code: int, reason: str) -> Object:
    return {"terminated": {"exitCode": code, "reason": reason}}


def _status(code: int, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return web.json_response(body, status=code)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
