"""`cascade deploy`: the flags in, the steps and the result out."""

import os

import httpx
import typer

from cascade_cli.deploy_sail.deploy import Deployer
from cascade_cli.deploy_sail.options import DeployOptions, OptionError
from cascade_cli.deploy_sail.sdk import DeployError, installed_sdk
from cascade_cli.output import fail


def run_deploy(
    *,
    workspace: str,
    image: str | None,
    from_source: bool,
    base_image: str | None,
    sim_cmd: str | None,
    accelsim_dir: str | None,
    postprocess_cmd: str | None,
    disk_gib: int | None,
) -> int:
    """Deploy and print what the user needs; returns the exit code."""
    try:
        options = DeployOptions(
            workspace=workspace,
            image=image,
            from_source=from_source,
            base_image=base_image,
            sim_cmd=sim_cmd,
            accelsim_dir=accelsim_dir,
            postprocess_cmd=postprocess_cmd,
            disk_gib=disk_gib,
        )
    except OptionError as error:
        fail(str(error), code=2)
    try:
        with httpx.Client() as http:
            deployed = Deployer(installed_sdk(), http, environ=os.environ, say=typer.echo).deploy(options)
    except DeployError as error:
        fail(str(error))
    for line in deployed.lines():
        typer.echo(line)
    return 0
