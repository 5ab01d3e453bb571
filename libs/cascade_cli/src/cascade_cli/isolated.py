"""The settings of an app that is started beside whatever the operator has: a demo, a benchmark, a capture."""

from pathlib import Path

from pydantic import SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from cascade_cli import bundled
from cascade_cli.embedded.process import free_ports
from cascade_cli.serve_settings import ServeSettings


class _Given(ServeSettings):
    """Only what is given counts: an operator's shell may name the servers and the backend of production."""

    # pydantic's signature: the sources that count for nothing here go unused.
    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def isolated_settings(
    directory: Path,
    *,
    token: str,
    sim_cmd: str,
    samples: bool = False,
    workspace: str | None = None,
    openai_wait_s: float = 3600,
) -> ServeSettings:
    """Settings of an app on embedded servers and free ports of 127.0.0.1, with local sims; its data in `directory`."""
    port, s3_port = free_ports(2)
    return _Given(
        token=SecretStr(token),
        data_dir=directory,
        accelsim_dir=bundled.CONFIGS,
        sim_cmd=sim_cmd,
        host="127.0.0.1",
        port=port,
        s3_port=s3_port,
        samples=samples,
        workspace=workspace,
        openai_wait_s=openai_wait_s,
        public_url=f"http://127.0.0.1:{port}",
    )
