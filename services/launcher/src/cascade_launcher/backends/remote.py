"""What backends that run sims on other machines have in common: the simulator's variables and the trace's address."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from cascade_core.sim_tokens import sim_token

from cascade_launcher import bucket_traces
from cascade_launcher.backends.protocol import Launch, LaunchError
from cascade_launcher.environment import contract
from cascade_launcher.trace_paths import trace_dir


def split_command(sim_cmd: str | None) -> list[str]:
    """CASCADE_SIM_CMD as arguments. Raises LaunchError."""
    if sim_cmd is None or not sim_cmd.strip():
        raise LaunchError("launch: CASCADE_SIM_CMD is not set")
    try:
        return shlex.split(sim_cmd)
    except ValueError as error:
        raise LaunchError(
            f"launch: CASCADE_SIM_CMD cannot be split into arguments ({error}): {sim_cmd!r}. Fix its quotes."
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """What every remote backend is told."""

    sim_cmd: str | None
    main_url: str
    token: str = field(repr=False)
    sim_tokens: bool = False
    """Whether each sim gets a token of its own instead of the app's."""
    accelsim_dir: Path
    bucket_name: str
    prefix: str
    s3_endpoint: str
    s3_region: str

    def trace_dir(self, trace_id: str, data_dir: str) -> str:
        """Where the trace lies on a sim's machine whose `CASCADE_DATA_DIR` is `data_dir`."""
        return str(trace_dir(Path(data_dir), bucket=self.bucket_name, prefix=self.prefix, trace_id=trace_id))

    def contract(self, launch: Launch, *, data_dir: str) -> dict[str, str]:
        """spec: simulator, The contract."""
        return contract(
            launch,
            main_url=self.main_url,
            token=sim_token(self.token, launch.sim_id) if self.sim_tokens else self.token,
            trace_dir=self.trace_dir(launch.trace_id, data_dir),
            accelsim_dir=str(self.accelsim_dir),
        )

    def bucket_environment(self, launch: Launch, *, endpoint: str | None) -> dict[str, str]:
        """What `fetch_trace` needs besides credentials. endpoint: the bucket's as sims reach it."""
        return {
            "CASCADE_TRACE_URL": bucket_traces.trace_url(self.bucket_name, self.prefix, launch.trace_id),
            "CASCADE_S3_ENDPOINT": endpoint or self.s3_endpoint,
            "CASCADE_S3_REGION": self.s3_region,
        }
