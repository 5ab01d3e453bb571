"""Commands that put Cascade somewhere else: provision, nats-config, deploy."""

import typer


def provision() -> None:
    """Make the streams and buckets on servers that run elsewhere, with the operator's logins. Safe to rerun."""
    from cascade_cli.provisioning.run import run_provision

    raise typer.Exit(run_provision())


def nats_config() -> None:
    """Print the users and permissions that a separately run NATS server includes."""
    from cascade_cli.provisioning.nats_config import users_config

    typer.echo(users_config(), nl=False)
