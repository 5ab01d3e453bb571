"""Commands on a running app: look at traces and runs, launch, watch, report, cancel, upload."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cascade_client.client import CascadeClient

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
RunId = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="A run's id.", show_default="the newest run")
]


def register(app: typer.Typer) -> None:
    """Give the command its verbs on a running app."""
    for verb in (traces, configs, runs, sims, results, watch, report, launch, cancel, upload, mcp):
        app.command()(verb)


def traces(
    trace_id: Annotated[
        str | None, typer.Argument(metavar="[TRACE]", help="Show one trace and its kernels.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List traces, newest first, or show one."""
    from cascade_cli import app_tables
    from cascade_cli.connecting import connected
    from cascade_cli.output import console, print_json

    with connected() as client:
        if trace_id is not None:
            trace = client.trace(trace_id)
            if as_json:
                print_json(trace.model_dump(mode="json"))
                return
            for part in app_tables.trace_tables(trace):
                console.print(part, markup=False)
            return
        found = client.traces()
    if as_json:
        print_json([trace.model_dump(mode="json") for trace in found])
    elif found:
        console.print(app_tables.traces_table(found))
    else:
        typer.echo("There are no traces yet. Next: cascade upload DIR --run-name NAME")


def configs(
    arch: Annotated[str | None, typer.Option(help="Only this architecture, such as sm_80.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the GPU configs that a run can use."""
    from cascade_cli import app_tables
    from cascade_cli.connecting import connected
    from cascade_cli.output import console, print_json

    with connected() as client:
        found = [config for config in client.gpu_configs() if arch in (None, config.arch)]
    if as_json:
        print_json([config.model_dump(mode="json") for config in found])
    elif found:
        console.print(app_tables.configs_table(found))
    else:
        typer.echo(f"There is no config{f' of {arch}' if arch else ''}. Next: cascade configs")


def runs(
    trace: Annotated[str | None, typer.Option(help="Only runs of this trace.")] = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    from cascade_cli import app_tables
    from cascade_cli.connecting import connected
    from cascade_cli.output import console, print_json

    with connected() as client:
        found = [run for run in client.runs() if trace in (None, run.trace_id)]
    if as_json:
        print_json([run.model_dump(mode="json") for run in found])
    elif found:
        console.print(app_tables.runs_table(found))
    else:
        of_it = f" of trace {trace}" if trace else ""
        typer.echo(f"There are no runs{of_it} yet. Next: cascade launch {trace or 'TRACE'} CONFIG")


def sims(run_id: RunId = None, as_json: AsJson = False) -> None:
    """List a run's sims with their progress."""
    from cascade_cli import app_tables
    from cascade_cli.connecting import connected
    from cascade_cli.output import console, print_json

    with connected() as client:
        run = client.run(_chosen(client, run_id))
    if as_json:
        print_json([sim.model_dump(mode="json", exclude_none=True) for sim in run.sims])
    else:
        console.print(app_tables.sims_table(run))


def results(
    run_id: RunId = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Save everything as one JSON file.")
    ] = None,
    perfetto: Annotated[Path | None, typer.Option(help="Save a trace for ui.perfetto.dev.")] = None,
    files: Annotated[
        Path | None, typer.Option(help="Save every sim's log and output files in this folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a run's kernels, real time against the sims', and save its files."""
    from cascade_client.provenance import time_word

    from cascade_cli import app_tables, saving
    from cascade_cli.connecting import connected
    from cascade_cli.output import console, print_json

    with connected() as client:
        run = client.run(_chosen(client, run_id))
        wanted = saving.wanted(client, run, results=output, perfetto=perfetto, files=files)
        saved = saving.save(client, wanted)
        comparison = client.comparison(run.id)
        statements = client.statements(run)
    if as_json:
        print_json(
            {
                "run_id": run.id,
                "statements": [statement.model_dump(mode="json") for statement in statements],
                "saved": saved,
                "comparison": comparison.model_dump(mode="json"),
            }
        )
        return
    app_tables.show_statements(statements, console)
    console.print(app_tables.comparison_table(comparison, time_word(run.sims)))
    for path in saved:
        typer.echo(f"saved {path}")


def watch(run_id: RunId = None, as_json: AsJson = False) -> None:
    """Watch a run live until it ends. Exit code 0 only if every sim succeeded."""
    from cascade_cli.connecting import connected

    with connected() as client:
        raise typer.Exit(_watched(client, _chosen(client, run_id), as_json=as_json))


def report(
    run_id: RunId = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell what a run found, beginning with where its numbers come from."""
    from cascade_client import report_text

    from cascade_cli import app_tables
    from cascade_cli.connecting import connected
    from cascade_cli.output import console, print_json

    with connected() as client:
        found = client.report(_chosen(client, run_id))
    if as_json:
        print_json(found.model_dump(mode="json"))
    elif markdown:
        typer.echo(report_text.markdown(found), nl=False)
    else:
        app_tables.show_report(found, console)


def launch(
    trace_id: Annotated[str, typer.Argument(metavar="TRACE", help="A ready trace.")],
    entries: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG[=COUNT]]...",
            help="Configs and replicas.",
            show_default="the trace's suggestion, else all that fit",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Launch more than 4 sims without asking.")] = False,
    then_watch: Annotated[bool, typer.Option("--watch", help="Watch the run afterwards.")] = False,
    as_json: AsJson = False,
) -> None:
    """Launch sims for a trace."""
    from cascade_cli import launching
    from cascade_cli.connecting import connected
    from cascade_cli.output import print_json

    with connected() as client:
        wanted = launching.chosen_entries(client, trace_id, entries or [])
        launching.confirm(wanted, yes=yes)
        run = client.launch(trace_id, wanted)
        if as_json:
            print_json(run.model_dump(mode="json"))
        else:
            typer.echo(launching.launched_line(run, wanted))
        if then_watch:
            raise typer.Exit(_watched(client, run.id, as_json=as_json))
        if not as_json:
            typer.echo(f"Next: cascade watch {run.id}")


def cancel(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The run to stop.")], as_json: AsJson = False
) -> None:
    """Cancel every sim of a run that has not finished."""
    from cascade_cli.connecting import connected
    from cascade_cli.output import print_json

    with connected() as client:
        run = client.cancel(run_id)
    if as_json:
        print_json(run.model_dump(mode="json"))
    else:
        counts = ", ".join(f"{count} {state}" for state, count in run.sim_counts.items())
        typer.echo(f"{run.id} is {run.state}: {counts}")


def upload(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The trace's directory, which holds traces/.")
    ],
    run_name: Annotated[str, typer.Option("--run-name", help="The trace's id in the app.")],
    meta: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="An entry of metadata.json, such as trace_gpu_arch=sm_80."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the trace is ready.")] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a trace directory; one that broke off goes on where it stopped."""
    from cascade_cli.uploading import run_upload

    raise typer.Exit(run_upload(directory, run_name=run_name, meta=meta or [], wait=wait, as_json=as_json))


def mcp(
    transport: Annotated[str, typer.Option(help="stdio or http (streamable).")] = "stdio",
    host: Annotated[str, typer.Option(help="With http: address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="With http: port to listen on.")] = 8765,
) -> None:
    """Serve the app's actions to agents by the Model Context Protocol."""
    from cascade_mcp.main import OpenDoorError, serve

    from cascade_cli.connecting import find_app
    from cascade_cli.output import fail

    if transport not in ("stdio", "http"):
        fail(f"there is no transport {transport!r}", "choose stdio or http")
    app = find_app()
    try:
        serve(app.url, app.token_text(), http=(host, port) if transport == "http" else None)
    except OpenDoorError as error:
        fail(str(error))


def _chosen(client: "CascadeClient", run_id: str | None) -> str:
    from cascade_cli.output import fail

    if run_id is not None:
        return run_id
    newest = next(iter(client.runs()), None)
    if newest is None:
        fail("there are no runs yet", "cascade launch TRACE CONFIG")
    return newest.id


def _watched(client: "CascadeClient", run_id: str, *, as_json: bool) -> int:
    from cascade_client.wire.runs import RunState

    from cascade_cli.output import stderr
    from cascade_cli.watching import watch

    try:
        state = watch(client, run_id, as_json=as_json, console=stderr)
    except KeyboardInterrupt:
        typer.echo(f"The run goes on. Next: cascade watch {run_id}", err=True)
        return 130
    if not as_json:
        typer.echo(f"{run_id} is {state}. Next: cascade report {run_id}")
    return 0 if state is RunState.SUCCEEDED else 1
