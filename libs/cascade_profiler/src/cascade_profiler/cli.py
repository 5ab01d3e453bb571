"""`cascade-profiler`: profile, stream, list layers and upload, on a machine that has the GPU itself.

Every option is checked before anything is started; `--dry-run` prints the commands and starts none.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cascade_profiler.commands import Layout, Tools, planned_commands
from cascade_profiler.container import ACCELSIM_DIR
from cascade_profiler.destination import upload_run
from cascade_profiler.driver import DEFAULT_ENGINE
from cascade_profiler.errors import OptionsError, ProfilerError
from cascade_profiler.options import (
    ProfileOptions,
    S3Destination,
    SpinlockHandling,
    check,
    check_run_name,
    trace_steps_from,
)
from cascade_profiler.pipeline import Surroundings, profile
from cascade_profiler.remote import run_stream
from cascade_profiler.stream import list_layers
from cascade_profiler.workload import Workload

app = typer.Typer(
    name="cascade-profiler",
    help="Trace a workload on a real GPU and upload it to Cascade.",
    no_args_is_help=True,
    add_completion=False,
)

Model = Annotated[str, typer.Option("--model", help="Model name or path, such as facebook/opt-125m.")]
Prompt = Annotated[list[str], typer.Option("--prompt", help="Prompt; repeatable, all are sent at once.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", help="Tokens to generate for each prompt.")]
RunName = Annotated[str | None, typer.Option("--run-name", help="Default: time and model.")]
Spinlock = Annotated[str, typer.Option("--spinlock-handling", help="mark_region, fast_forward or none.")]
Accelsim = Annotated[
    Path,
    typer.Option("--accelsim-dir", envvar="CASCADE_ACCELSIM_DIR", help="Checkout with the tracer built."),
]
Scratch = Annotated[Path, typer.Option("--scratch", help="Local disk for everything until the end.")]
Engine = Annotated[str, typer.Option("--engine", help="module:function that opens the engine.", hidden=True)]
Postprocessor = Annotated[
    str | None,
    typer.Option("--postprocessor", envvar="CASCADE_POSTPROCESS_CMD", help="Default: the checkout's own."),
]
S3Endpoint = Annotated[str | None, typer.Option("--s3-endpoint", help="S3 endpoint (not the app's URL).")]
S3Bucket = Annotated[str, typer.Option("--s3-bucket", help="Bucket.")]
S3Region = Annotated[str, typer.Option("--s3-region", help="Region.")]
S3Style = Annotated[str, typer.Option("--s3-addressing-style", help="path, virtual or auto.")]
S3Layout = Annotated[str, typer.Option("--s3-layout", help="'cascade' for an app, 'run' to keep the run.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the commands and start none.")]

TEMPORARY = Path(tempfile.gettempdir())


@app.command("profile")
def profile_command(
    *,
    model: Model,
    prompt: Prompt,
    max_tokens: MaxTokens = 32,
    repeats: Annotated[int, typer.Option("--repeats", help="Repeats, warm-ups included.")] = 4,
    warmup_repeats: Annotated[
        int, typer.Option("--warmup-repeats", help="Repeats left out of statistics.")
    ] = 1,
    trace_steps: Annotated[
        str, typer.Option("--trace-steps", help="'plan', steps such as 0,5, or '' for timing only.")
    ] = "plan",
    trace_repeat: Annotated[
        int | None, typer.Option("--trace-repeat", help="Repeat to trace; default: the first steady one.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Directory for run directories.")] = Path("runs"),
    scratch: Scratch = TEMPORARY,
    accelsim_dir: Accelsim = Path(ACCELSIM_DIR),
    spinlock_handling: Spinlock = "mark_region",
    run_name: RunName = None,
    keep_nsys_rep: Annotated[bool, typer.Option("--keep-nsys-rep", help="Keep Nsight's capture.")] = False,
    postprocess: Annotated[
        bool, typer.Option("--postprocess/--no-postprocess", help="Process traces here.")
    ] = True,
    postprocessor: Postprocessor = None,
    s3_endpoint: S3Endpoint = None,
    s3_bucket: S3Bucket = "cascade",
    s3_prefix: Annotated[str, typer.Option("--s3-prefix", help="Prefix in the bucket.")] = "accelsim-traces",
    s3_region: S3Region = "auto",
    s3_addressing_style: S3Style = "path",
    s3_layout: S3Layout = "cascade",
    engine: Engine = DEFAULT_ENGINE,
    dry_run: DryRun = False,
) -> None:
    """Measure, profile and trace a workload: baseline, then Nsight, then NVBit on selected steps."""
    with _reported():
        workload = Workload(
            model, prompt, max_tokens=max_tokens, repeats=repeats, warmup_repeats=warmup_repeats
        )
        options = ProfileOptions(
            trace_steps=trace_steps_from(trace_steps),
            trace_repeat=trace_repeat,
            spinlock_handling=_spinlock(spinlock_handling),
            keep_nsys_rep=keep_nsys_rep,
            postprocess=postprocess,
            run_name=run_name,
            s3=_destination(
                s3_endpoint,
                bucket=s3_bucket,
                prefix=s3_prefix,
                region=s3_region,
                addressing_style=s3_addressing_style,
                layout=s3_layout,
            ),
        )
        check(workload, options)
        around = _surroundings(out, scratch, accelsim_dir, engine, postprocessor)
        if dry_run:
            _print_plan(workload, options, around)
            return
        run = profile(workload, options, around)
        typer.echo(json.dumps({"run_dir": str(out / str(run["run_name"])), **run}, indent=1))


@app.command("list-layers")
def list_layers_command(
    model: Model,
    scratch: Scratch = TEMPORARY,
    engine: Engine = DEFAULT_ENGINE,
) -> None:
    """Print the module paths that `stream --layers` takes."""
    with _reported():
        around = _surroundings(Path("runs"), scratch, Path(ACCELSIM_DIR), engine, None)
        workload = Workload(model, ["."], max_tokens=1, repeats=1, warmup_repeats=0)
        for layer in list_layers(workload, around):
            typer.echo(layer)


@app.command("stream")
def stream_command(
    *,
    model: Model,
    list_layers_only: Annotated[
        bool, typer.Option("--list-layers", help="Print the layers and stop.")
    ] = False,
    layers: Annotated[list[str] | None, typer.Option("--layers", help="Module to trace; repeatable.")] = None,
    prompt: Annotated[list[str] | None, typer.Option("--prompt", help="Prompt; repeatable.")] = None,
    max_tokens: MaxTokens = 4,
    s3_endpoint: S3Endpoint = None,
    s3_bucket: S3Bucket = "cascade",
    s3_prefix: Annotated[
        str, typer.Option("--s3-prefix", help="Must be the app's CASCADE_S3_PREFIX.")
    ] = "accelsim-traces",
    s3_region: S3Region = "auto",
    s3_addressing_style: S3Style = "path",
    spinlock_handling: Spinlock = "mark_region",
    run_name: RunName = None,
    scratch: Scratch = TEMPORARY,
    accelsim_dir: Accelsim = Path(ACCELSIM_DIR),
    engine: Engine = DEFAULT_ENGINE,
) -> None:
    """Trace a few layers and stream every closed kernel file into an app's bucket."""
    if list_layers_only:
        list_layers_command(model=model, scratch=scratch, engine=engine)
        return
    with _reported():
        if s3_endpoint is None:
            raise OptionsError("streaming needs --s3-endpoint; /api/health of the app names it (s3_endpoint)")
        destination = _destination(
            s3_endpoint,
            bucket=s3_bucket,
            prefix=s3_prefix,
            region=s3_region,
            addressing_style=s3_addressing_style,
            layout="cascade",
        )
        assert destination is not None, "the endpoint was given"
        workload = Workload(model, prompt or [], max_tokens=max_tokens, repeats=1, warmup_repeats=0)
        result = run_stream(
            workload.to_dict(),
            layers or [],
            s3=destination.to_dict(),
            spinlock_handling=_spinlock(spinlock_handling),
            run_name=run_name,
            around=_surroundings(Path("runs"), scratch, accelsim_dir, engine, None),
        )
        typer.echo(json.dumps(result, indent=1))


@app.command("upload")
def upload_command(
    *,
    run_dir: Annotated[
        Path, typer.Argument(help="A run directory, as profile left it or Modal downloaded it.")
    ],
    s3_endpoint: Annotated[str, typer.Option("--s3-endpoint", help="S3 endpoint (not the app's URL).")],
    s3_bucket: S3Bucket = "cascade",
    s3_prefix: Annotated[str, typer.Option("--s3-prefix", help="Prefix in the bucket.")] = "accelsim-traces",
    s3_region: S3Region = "auto",
    s3_addressing_style: S3Style = "path",
    s3_layout: S3Layout = "cascade",
    run_name: RunName = None,
) -> None:
    """Upload a finished run, run.json last, so that an app takes it up as a trace."""
    with _reported():
        destination = _destination(
            s3_endpoint,
            bucket=s3_bucket,
            prefix=s3_prefix,
            region=s3_region,
            addressing_style=s3_addressing_style,
            layout=s3_layout,
        )
        assert destination is not None, "the endpoint was given"
        name = run_name or run_dir.resolve().name
        check_run_name(name)
        upload_run(run_dir, destination, name, _environ(), progress=lambda line: typer.echo(line, err=True))
        typer.echo(destination.uri(name))


def main() -> None:
    """Entry point of the script."""
    app()


@contextmanager
def _reported() -> Iterator[None]:
    """Turn an expected error into one message on stderr and exit code 2 (options) or 1."""
    try:
        yield
    except OptionsError as error:
        typer.echo(f"cascade-profiler: {error}", err=True)
        raise typer.Exit(2) from error
    except ProfilerError as error:
        typer.echo(f"cascade-profiler: {error}", err=True)
        raise typer.Exit(1) from error


def _print_plan(workload: Workload, options: ProfileOptions, around: Surroundings) -> None:
    layout = Layout(around.scratch_dir / "cascade-trace-<random>")
    commands = planned_commands(
        around.tools,
        layout,
        repeat=options.repeat_to_trace(workload),
        steps=None if options.trace_steps == "plan" else options.trace_steps,
        handling=options.spinlock_handling,
        postprocess=options.postprocess,
        jobs=around.jobs,
    )
    for stage, command in commands:
        typer.echo(f"# {stage} (output: {command.log})")
        typer.echo(command.render())
    typer.echo(f"# collect into {around.runs_dir}/{options.run_name or '<time>__<model>'}")
    if options.s3 is not None:
        uri = options.s3.uri(options.run_name or "<run name>")
        typer.echo(f"# upload to {uri} (layout {options.s3.layout}), run.json last")


def _destination(
    endpoint: str | None, *, bucket: str, prefix: str, region: str, addressing_style: str, layout: str
) -> S3Destination | None:
    if endpoint is None:
        return None
    return S3Destination.from_mapping(
        {
            "endpoint": endpoint,
            "bucket": bucket,
            "prefix": prefix,
            "region": region,
            "addressing_style": addressing_style,
            "layout": layout,
        }
    )


def _spinlock(text: str) -> SpinlockHandling:
    match text:
        case "mark_region" | "fast_forward" | "none":
            return text
        case _:
            raise OptionsError(f"--spinlock-handling is {text!r}; use mark_region, fast_forward or none")


def _surroundings(
    out: Path, scratch: Path, accelsim_dir: Path, engine: str, postprocessor: str | None
) -> Surroundings:
    tools = Tools.in_accelsim(accelsim_dir, engine=engine)
    if postprocessor is not None:
        tools = replace(tools, postprocessor=postprocessor)
    return Surroundings(
        runs_dir=out,
        scratch_dir=scratch,
        environ=_environ(),
        tools=tools,
        jobs=os.cpu_count() or 1,
        progress=lambda line: typer.echo(line, err=True),
    )


def _environ() -> Mapping[str, str]:
    return dict(os.environ)
