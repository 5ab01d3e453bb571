"""The whole app: embedded (or external) servers and the services on them, as one async context manager."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import structlog
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.permissions import SERVICES, permissions_of
from cascade_core.jetstream.provision import provision
from cascade_core.settings import NatsSettings
from cascade_core.writers import Service

from cascade_cli import bundled, child_environment, ports, running
from cascade_cli.embedded.s3_requests import S3Access
from cascade_cli.embedded.stack import EmbeddedStack, NatsLogin, StackUrls
from cascade_cli.serve_settings import ServeSettings
from cascade_cli.supervisor import Service as ServiceProcess
from cascade_cli.supervisor import Supervisor

_logger = structlog.get_logger(__name__)

# What every service takes from the operator's environment, beside what any program needs.
_PASSED_ON = (
    "CASCADE_LOG_FORMAT", "CASCADE_LOG_LEVEL", "CASCADE_OTLP_ENDPOINT",
    "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG",
    "CASCADE_TOKENIZER_DIR",
)  # fmt: skip
# What the launcher's backends and their clients read; `cascade serve` has no flags for it.
_BACKEND_VARIABLES = (
    "CASCADE_K8S_", "CASCADE_SAIL_", "CASCADE_MODAL_", "CASCADE_LAUNCH_TIMEOUT_S", "CASCADE_KEEP_SIM_FILES_DAYS",
    "SAIL_", "MODAL_", "KUBE",
)  # fmt: skip
# The order of an orderly stop: no new work, no sims, then the readers, the gateway last.
STOP_ORDER = ("samples", "ingest", "launcher", "parser", "requestsim", "api")
# In this order, each on the port after the one before. The gateway shows its own at `/api/metrics`.
METRICS_ORDER = ("ingest", "launcher", "parser", "requestsim")
MODULES = {
    "ingest": "cascade_ingest.main",
    "launcher": "cascade_launcher.main",
    "requestsim": "cascade_requestsim.main",
    "parser": "cascade_parser.main",
    "api": "cascade_api.main",
    "samples": "cascade_cli.samples",
}
# Ends the local sims that a killed launcher left.
STOP_SIMS = "cascade_launcher.stop_all"


@dataclass(frozen=True, slots=True)
class RunningApp:
    """A started app."""

    settings: ServeSettings
    urls: StackUrls
    supervisor: Supervisor
    stack: EmbeddedStack

    @property
    def url(self) -> str:
        """The app's URL on this machine."""
        return self.settings.local_url()


def embedded_stack(settings: ServeSettings) -> EmbeddedStack:
    """The embedded servers that `settings` leave to us."""
    external_s3 = None
    if settings.s3_endpoint is not None:
        secret = settings.s3_secret_key
        external_s3 = S3Access(
            endpoint=settings.s3_endpoint,
            access_key=settings.s3_access_key,
            secret_key=secret.get_secret_value() if secret else None,
            bucket=settings.s3_bucket,
            internal_bucket=f"{settings.s3_bucket}-internal",
        )
    return EmbeddedStack(
        settings.data_dir,
        s3_port=settings.s3_port,
        bucket=settings.s3_bucket,
        internal_bucket=f"{settings.s3_bucket}-internal",
        anonymous=settings.s3_anonymous,
        nats_logins=[nats_login(service) for service in SERVICES],
        external_nats_url=settings.nats_url,
        external_database_url=settings.database_url.get_secret_value() if settings.database_url else None,
        external_s3=external_s3,
    )


def nats_login(service: Service) -> NatsLogin:
    """The embedded server's login of one service: it can publish only its own facts."""
    permissions = permissions_of(service)
    return NatsLogin(service, publish=permissions.publish, subscribe=permissions.subscribe)


@asynccontextmanager
async def running_app(
    settings: ServeSettings, *, only: tuple[str, ...] = STOP_ORDER, log_to: int | None = None
) -> AsyncIterator[RunningApp]:
    """Start the servers and the services; stop them in order at the end of the block.

    An error of a server or a service that restarts do not cure ends the block.
    """
    stack = embedded_stack(settings)
    async with stack:
        if "api" in only:
            await ports.free(settings.host, settings.port)
        # The services' own logins may not make streams.
        async with connected(NatsSettings(nats_url=stack.urls.nats_url), name="cascade-serve") as client:
            await provision(client)
        services = [
            ServiceProcess(name, MODULES[name], environment_of(name, settings, stack))
            for name in STOP_ORDER
            if name in only and (name != "samples" or settings.samples)
        ]
        supervisor = Supervisor(services, log_to=log_to)
        watching = asyncio.create_task(supervisor.run())
        owner = asyncio.current_task()

        def on_end(task: "asyncio.Task[None]") -> None:
            if not task.cancelled() and task.exception() is not None and owner is not None:
                owner.cancel()

        watching.add_done_callback(on_end)
        try:
            with running.announced(settings.data_dir, _urls(settings, stack.urls)):
                yield RunningApp(settings, stack.urls, supervisor, stack)
        except asyncio.CancelledError:
            failure = watching.exception() if watching.done() and not watching.cancelled() else None
            if failure is None:
                raise
            raise _first(failure) from failure
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await supervisor.stop()
            # On a log that outlives this app another launcher may lead, and the sims would be its own.
            if "launcher" in only and settings.sims == "local" and settings.nats_url is None:
                await supervisor.run_last(
                    ServiceProcess("stop-sims", STOP_SIMS, environment_of("launcher", settings, stack))
                )


def _first(error: BaseException) -> BaseException:
    """The first error of a group of errors, or the error itself."""
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _urls(settings: ServeSettings, urls: StackUrls) -> running.RunningUrls:
    return running.RunningUrls(
        pid=os.getpid(),
        url=settings.local_url(),
        token=settings.token.get_secret_value() if settings.token else None,
        nats_url=urls.nats_url,
        database_url=urls.database_url,
        s3_endpoint=urls.s3.endpoint,
        s3_bucket=urls.s3.bucket,
        s3_internal_bucket=urls.s3.internal_bucket,
        s3_prefix=settings.s3_prefix,
        s3_access_key=urls.s3.access_key,
        s3_secret_key=urls.s3.secret_key,
    )


def environment_of(name: str, settings: ServeSettings, stack: EmbeddedStack) -> dict[str, str]:
    """The environment of one service: what it needs and no secret beyond that."""
    urls = stack.urls
    environment = child_environment.bare() | {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    environment["PYTHONUNBUFFERED"] = "1"
    if settings.metrics_port is not None and name in METRICS_ORDER:
        environment["CASCADE_METRICS_PORT"] = str(settings.metrics_port + METRICS_ORDER.index(name))
        environment["CASCADE_METRICS_HOST"] = "127.0.0.1"
    # The samples service writes several services' facts, as an operator might.
    environment["CASCADE_NATS_URL"] = urls.nats_url if name == "samples" else stack.nats_url_for(name)
    if name == "samples":
        environment["CASCADE_SAMPLES_AFTER_URL"] = f"{settings.local_url()}/api/health"
    if name in ("api", "ingest", "launcher", "requestsim", "samples"):
        environment |= _bucket_environment(settings, urls.s3)
    if name in ("ingest", "launcher", "api"):
        environment["CASCADE_DATA_DIR"] = str(settings.data_dir.absolute())
        environment["CASCADE_ACCELSIM_DIR"] = str(settings.resolved_accelsim_dir())
    if name in ("api", "launcher"):
        if settings.token is not None:
            environment["CASCADE_TOKEN"] = settings.token.get_secret_value()
        if settings.no_auth:
            environment["CASCADE_NO_AUTH"] = "1"
    if name == "api":
        environment |= {
            "CASCADE_DATABASE_URL": urls.database_url,
            "CASCADE_HOST": settings.host,
            "CASCADE_PORT": str(settings.port),
            "CASCADE_OPENAI_WAIT_S": str(settings.openai_wait_s),
            "CASCADE_WEB_DIR": str(bundled.WEB_BUILD),
        }
        if settings.workspace is not None:
            environment["CASCADE_WORKSPACE"] = settings.workspace
    if name == "launcher":
        environment |= {
            "CASCADE_SIMS": settings.sims,
            "CASCADE_SIM_TOKENS": str(int(settings.sim_tokens)),
            "CASCADE_SIM_CMD": settings.resolved_sim_cmd(),
            "CASCADE_PUBLIC_URL": public_url(settings),
            "CASCADE_HEARTBEAT_TIMEOUT_S": str(settings.heartbeat_timeout_s),
        }
        environment |= {key: value for key, value in os.environ.items() if key.startswith(_BACKEND_VARIABLES)}
    if name == "ingest" and settings.postprocess_cmd is not None:
        environment["CASCADE_POSTPROCESS_CMD"] = settings.postprocess_cmd
    return environment


def _bucket_environment(settings: ServeSettings, s3: S3Access) -> dict[str, str]:
    environment = {
        "CASCADE_S3_ENDPOINT": s3.endpoint,
        "CASCADE_S3_BUCKET": s3.bucket,
        "CASCADE_S3_INTERNAL_BUCKET": s3.internal_bucket,
        "CASCADE_S3_PREFIX": settings.s3_prefix,
        "CASCADE_S3_PUBLIC_URL": settings.s3_public_url or _public_s3(settings, s3),
    }
    if s3.access_key is not None and s3.secret_key is not None:
        environment |= {"CASCADE_S3_ACCESS_KEY": s3.access_key, "CASCADE_S3_SECRET_KEY": s3.secret_key}
    return environment


def public_url(settings: ServeSettings) -> str:
    """Where sims reach the app."""
    return settings.public_url or settings.local_url()


def _public_s3(settings: ServeSettings, s3: S3Access) -> str:
    port = urlsplit(s3.endpoint).port
    host = urlsplit(public_url(settings)).hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{port}" if settings.s3_endpoint is None else s3.endpoint
