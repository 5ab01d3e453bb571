"""Commands that put Cascade somewhere else: provision, nats-config, deploy."""

from typing import Annotated

import typer


def provision() -> None:
    """Make the streams and buckets on servers that run elsewhere, with the operator's logins. Safe to rerun."""
    from cascade_cli.provisioning.run import run_provision

    raise typer.Exit(run_provision())


def nats_config() -> None:
    """Print the users and permissions that a separately run NATS server includes."""
    from cascade_cli.provisioning.nats_config import users_config

    typer.echo(users_config(), nl=False)


def deploy(
    *,
    workspace: Annotated[
        str,
        typer.Option(
            help="Name: 3 to 32 lowercase letters, digits and hyphens. The Sail app is cascade-NAME."
        ),
    ],
    image: Annotated[
        str | None,
        typer.Option(help="Public app image to boot. (default: ghcr.io/atoniolo76/cascade:latest)"),
    ] = None,
    from_source: Annotated[
        bool, typer.Option("--from-source", help="Build this checkout's Dockerfile on Sail instead.")
    ] = False,
    base_image: Annotated[
        str | None,
        typer.Option(help="The Dockerfile's BASE_IMAGE, with --from-source. (default: ubuntu:22.04)"),
    ] = None,
    sim_cmd: Annotated[
        str | None,
        typer.Option(
            help="Command each sim runs, inside the image. "
            "(default: cascade worker --replay, on a recorded log that the image holds)"
        ),
    ] = None,
    accelsim_dir: Annotated[
        str | None,
        typer.Option(
            help="Accel-Sim inside the image, not on this machine. "
            "(default: /app/tests/fixtures/accelsim, which the image holds: configs only)"
        ),
    ] = None,
    postprocess_cmd: Annotated[
        str | None,
        typer.Option(help="Trace post-processor inside the image. (default: the one of Accel-Sim)"),
    ] = None,
    disk_gib: Annotated[
        int | None, typer.Option(help="Disk limit of the sandbox, which every sim forks. (default: Sail's)")
    ] = None,
) -> None:
    """Create or find a workspace in your Sail account (SAIL_API_KEY) and print how to reach it. Safe to rerun."""
    from cascade_cli.deploy_sail.command import run_deploy

    raise typer.Exit(
        run_deploy(
            workspace=workspace,
            image=image,
            from_source=from_source,
            base_image=base_image,
            sim_cmd=sim_cmd,
            accelsim_dir=accelsim_dir,
            postprocess_cmd=postprocess_cmd,
            disk_gib=disk_gib,
        )
    )


def get_started(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8080,
) -> None:
    """Serve the page that makes a workspace from the browser. Put TLS in front of it; it stores nothing."""
    from cascade_cli.deploy_sail.get_started import run_get_started

    raise typer.Exit(run_get_started(host, port))
