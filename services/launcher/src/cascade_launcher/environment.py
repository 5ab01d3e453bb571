"""The environment of a sim: the contract's variables, and of the launcher's own what holds no secret.
Pure."""

import re
from collections.abc import Mapping

from cascade_launcher.backends.protocol import Launch

# The worker's own tunables may be set once, for the launcher, and reach every sim.
_PASSED_ON = frozenset(
    {
        "CASCADE_HEARTBEAT_INTERVAL_S",
        "CASCADE_RETRY_FOR_S",
        "CASCADE_UPLOAD_RETRY_FOR_S",
        "CASCADE_STOP_GRACE_S",
        "CASCADE_KEEP_SIM_FILES_DAYS",
    }
)
_SECRET_NAME = re.compile(
    r"^(AWS|PG|POSTGRES|NATS|SAIL|MODAL|MINIO|OTEL_EXPORTER)_?"
    r"|SECRET|PASSWORD|PASSWD|TOKEN|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|DATABASE_URL|AUTH",
    re.IGNORECASE,
)
_URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")


def contract(
    launch: Launch, *, main_url: str, token: str, trace_dir: str, accelsim_dir: str
) -> dict[str, str]:
    """spec: simulator, The contract; plus the attempt, which the simulator may send back."""
    return {
        "CASCADE_SIM_ID": launch.sim_id,
        "CASCADE_MAIN_URL": main_url.rstrip("/"),
        "CASCADE_TOKEN": token,
        "CASCADE_GPU_CONFIG": launch.gpu_config,
        "CASCADE_TRACE_DIR": trace_dir,
        "CASCADE_ACCELSIM_DIR": accelsim_dir,
        "CASCADE_ATTEMPT": launch.attempt,
    }


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What a local sim may see of the launcher's environment: paths, locale, the user's own; no secrets."""
    return {name: value for name, value in environ.items() if _may_be_seen(name, value)}


def _may_be_seen(name: str, value: str) -> bool:
    if name.startswith("CASCADE_"):
        return name in _PASSED_ON
    return _SECRET_NAME.search(name) is None and _URL_WITH_PASSWORD.search(value) is None
