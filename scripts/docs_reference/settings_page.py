"""Every environment variable, from the settings classes of all services and of the command line."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cascade_api.settings import ApiSettings
from cascade_cli import bundled
from cascade_cli.connecting import ConnectSettings
from cascade_cli.demo import DemoSettings
from cascade_cli.provisioning.settings import ProvisionSettings
from cascade_cli.samples import SamplesSettings
from cascade_cli.serve_settings import ServeSettings
from cascade_cli.uploading import BucketSettings as UploadSettings
from cascade_core.settings import BucketSettings, NatsSettings, TelemetrySettings
from cascade_ingest.settings import IngestSettings
from cascade_launcher.backends.kubernetes_settings import KubernetesSettings
from cascade_launcher.backends.modal_settings import ModalSettings
from cascade_launcher.backends.sail import SailSettings
from cascade_launcher.fetch_trace import FetchSettings
from cascade_launcher.settings import LauncherSettings
from cascade_parser.main import ParserSettings
from cascade_requestsim.settings import RequestsimSettings
from cascade_worker.settings import WorkerSettings
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from scripts.docs_reference.blocks import table

GROUPS: Mapping[str, type[BaseSettings]] = {
    "serve": ServeSettings,
    "nats": NatsSettings,
    "bucket": BucketSettings,
    "telemetry": TelemetrySettings,
    "api": ApiSettings,
    "ingest": IngestSettings,
    "launcher": LauncherSettings,
    "kubernetes": KubernetesSettings,
    "sail": SailSettings,
    "modal": ModalSettings,
    "fetch": FetchSettings,
    "parser": ParserSettings,
    "requestsim": RequestsimSettings,
    "worker": WorkerSettings,
    "connect": ConnectSettings,
    "upload": UploadSettings,
    "demo": DemoSettings,
    "provision": ProvisionSettings,
    "samples": SamplesSettings,
}
SHARED = (NatsSettings, BucketSettings, TelemetrySettings)


def settings(arguments: Sequence[str]) -> str:
    """The table of one group; a service's own settings only, the shared ones stand in their own tables."""
    (group,) = arguments
    cls = GROUPS[group]
    taken = {
        name
        for shared in SHARED
        if cls is not shared and issubclass(cls, shared)
        for name in shared.model_fields
    }
    rows = [
        [f"`{variable(cls, name, field)}`", _default(field), field.description or ""]
        for name, field in cls.model_fields.items()
        if name not in taken
    ]
    return table(["variable", "default", "what it sets"], rows) if rows else "None of its own."


def variables() -> Iterator[str]:
    """Every variable of every group."""
    for cls in GROUPS.values():
        for name, field in cls.model_fields.items():
            yield variable(cls, name, field)


def variable(cls: type[BaseSettings], name: str, field: FieldInfo) -> str:
    """The environment variable of a field."""
    if isinstance(field.validation_alias, str):
        return field.validation_alias
    return f"{cls.model_config.get('env_prefix', '')}{name}".upper()


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return "see text"
    match field.default:
        case None:
            return "none"
        case SecretStr() as secret:
            return f"`{secret.get_secret_value()}`" if "@127.0.0.1" in secret.get_secret_value() else "none"
        case bool(value):
            return f"`{str(value).lower()}`"
        case Path() as path if path.is_relative_to(bundled.ROOT):
            return f"`{path.relative_to(bundled.ROOT)}` of the checkout"
        case {} | [] | "":
            return "empty"
        case value:
            return f"`{value}`"
