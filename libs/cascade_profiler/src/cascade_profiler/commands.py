"""The exact commands of a profile: what is run, with which environment, where. Pure.

`--dry-run` prints what this module returns, and the pipeline runs the same objects, so that the two cannot differ.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cascade_profiler.driver import DEFAULT_ENGINE, Mode
from cascade_profiler.options import SPINLOCK_MODES, SpinlockHandling

TRACER_DIRECTORY = Path("util/tracer_nvbit")
"""Where Accel-Sim's checkout keeps its NVBit tools."""

NVIDIA_SMI_PERIOD_MS = 200
"""[ms] Clocks change within seconds; five samples a second are plenty for a median and cost nothing."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The programs that a profile needs, by path or by name on PATH."""

    tracer: Path
    spinlock_detector: Path
    postprocessor: str
    python: str = sys.executable
    nsys: str = "nsys"
    nvidia_smi: str = "nvidia-smi"
    engine: str = DEFAULT_ENGINE

    @classmethod
    def in_accelsim(cls, checkout: Path, *, engine: str = DEFAULT_ENGINE) -> Tools:
        """Return the tools as `make -C util/tracer_nvbit` leaves them in an Accel-Sim checkout."""
        tools = checkout / TRACER_DIRECTORY
        return cls(
            tracer=tools / "tracer_tool/tracer_tool.so",
            spinlock_detector=tools / "others/spinlock_tool/spinlock_tool.so",
            postprocessor=str(tools / "tracer_tool/traces-processing/post-traces-processing"),
            engine=engine,
        )


@dataclass(frozen=True, slots=True)
class Command:
    """One process to run.

    env: variables on top of the scrubbed environment.
    keep_secrets: names of secrets that this process may see, where it cannot do without.
    log: file that takes its output.
    """

    argv: tuple[str, ...]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    keep_secrets: tuple[str, ...] = ()

    def render(self) -> str:
        """Return the command as one line for a POSIX shell."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        return " ".join([*assignments, shlex.join(self.argv)])


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a run's files lie, below its scratch directory and later, the same, below the run directory."""

    root: Path

    @property
    def workload(self) -> Path:
        return self.root / "workload.json"

    @property
    def baseline(self) -> Path:
        return self.root / "baseline"

    @property
    def profiled(self) -> Path:
        return self.root / "profiled"

    @property
    def report(self) -> Path:
        return self.profiled / "capture.nsys-rep"

    @property
    def export(self) -> Path:
        return self.profiled / "capture.sqlite"

    @property
    def clocks(self) -> Path:
        return self.profiled / "clocks.csv"

    @property
    def traced(self) -> Path:
        return self.root / "traced"

    @property
    def traces(self) -> Path:
        return self.traced / "traces"

    @property
    def logs(self) -> Path:
        return self.root / "logs"


def driver_command(
    tools: Tools,
    layout: Layout,
    mode: Mode,
    *,
    out: Path,
    log: str,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Command:
    """Return the command that runs the workload in one mode.

    Only the baseline may see the Hugging Face token: it fetches the model, and the later runs, which a profiler
    or a tracer looks into, find it in the cache.
    """
    first = mode in {"baseline", "list-layers"}
    argv = (
        tools.python,
        "-m",
        "cascade_profiler.driver",
        f"--mode={mode}",
        f"--workload={layout.workload}",
        f"--out={out}",
        f"--engine={tools.engine}",
        *arguments,
    )
    variables = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one process: ranges, launches and tracer belong together
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **({} if first else {"HF_HUB_OFFLINE": "1"}),
        **(env or {}),
    }
    keep = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") if first else ()
    return Command(argv=argv, log=layout.logs / log, env=variables, keep_secrets=keep)


def baseline_command(tools: Tools, layout: Layout) -> Command:
    """Return the unprofiled run."""
    return driver_command(tools, layout, "baseline", out=layout.baseline, log="baseline.log")


def profiled_commands(tools: Tools, layout: Layout) -> tuple[Command, Command]:
    """Return the run under Nsight, which captures the steady repeats only, and the export of its capture."""
    run = driver_command(tools, layout, "profiled", out=layout.profiled, log="nsys-profile.log")
    profile = Command(
        argv=(
            tools.nsys,
            "profile",
            "--trace=cuda,nvtx",
            "--sample=none",
            "--cpuctxsw=none",
            "--cuda-graph-trace=node",
            "--capture-range=cudaProfilerApi",
            "--capture-range-end=stop",
            "--force-overwrite=true",
            f"--output={layout.report}",
            *run.argv,
        ),
        log=run.log,
        env=run.env,
    )
    export = Command(
        argv=(
            tools.nsys,
            "export",
            "--type=sqlite",
            "--force-overwrite=true",
            f"--output={layout.export}",
            str(layout.report),
        ),
        log=layout.logs / "nsys-export.log",
    )
    return profile, export


def clocks_command(tools: Tools, layout: Layout) -> Command:
    """Return the clock sampler that runs beside the profiled run until it is stopped."""
    return Command(
        argv=(
            tools.nvidia_smi,
            "--query-gpu=clocks.sm,clocks.mem",
            "--format=csv,noheader,nounits",
            f"--loop-ms={NVIDIA_SMI_PERIOD_MS}",
        ),
        log=layout.clocks,
    )


def gpu_command(tools: Tools, layout: Layout) -> Command:
    """Return the query for the GPU's name and compute capability, for a metadata.json that goes out first."""
    return Command(
        argv=(tools.nvidia_smi, "--query-gpu=name,compute_cap", "--format=csv,noheader"),
        log=layout.logs / "gpu.csv",
    )


def layers_command(tools: Tools, layout: Layout) -> Command:
    """Return the run that prints the model's modules, one a line, on its log's end."""
    return driver_command(tools, layout, "list-layers", out=layout.baseline, log="layers.log")


def layer_arguments(layers: Sequence[str]) -> tuple[str, ...]:
    """Return the driver's arguments for tracing inside some modules."""
    return tuple(f"--layer={layer}" for layer in layers)


def spinlock_commands(
    tools: Tools,
    layout: Layout,
    *,
    handling: SpinlockHandling,
    arguments: Sequence[str],
    mode: Mode = "spinlock",
) -> tuple[Command, ...]:
    """Return the two detection passes, or none where spin loops are not handled.

    The detector counts each instruction's executions twice and compares; what differs waits for something. The
    tracer reads the result from `spinlock_detection/` below the same folder.
    """
    if handling == "none":
        return ()
    return tuple(
        driver_command(
            tools,
            layout,
            mode,
            out=layout.traced / f"spinlock-pass-{phase}",
            log=f"spinlock-pass-{phase}.log",
            arguments=arguments,
            env={
                "CUDA_INJECTION64_PATH": str(tools.spinlock_detector),
                "SPINLOCK_PHASE": str(phase),
                "TRACES_FOLDER": str(layout.traced),
            },
        )
        for phase in (0, 1)
    )


def trace_command(
    tools: Tools,
    layout: Layout,
    *,
    handling: SpinlockHandling,
    arguments: Sequence[str],
    mode: Mode = "traced",
) -> Command:
    """Return the run under the tracer, which is off until the driver switches it on."""
    return driver_command(
        tools,
        layout,
        mode,
        out=layout.traced,
        log="trace.log",
        arguments=arguments,
        env={
            "CUDA_INJECTION64_PATH": str(tools.tracer),
            "TRACES_FOLDER": str(layout.traced),
            "NVBIT_INSTRUMENTATION_ENABLED": "0",
            "ACTIVE_FROM_START": "1",
            "ALLOW_REG_VAL_TRACING": "1",
            "TRACE_FILE_COMPRESS": "1",
            "SPINLOCK_HANDLING_MODE": str(SPINLOCK_MODES[handling]),
        },
    )


def trace_arguments(*, repeat: int, steps: Sequence[int]) -> tuple[str, ...]:
    """Return the driver's arguments that say what to trace."""
    return (f"--trace-repeat={repeat}", f"--trace-steps={','.join(map(str, steps))}")


def postprocess_command(tools: Tools, layout: Layout, *, jobs: int) -> Command:
    """Return the post-processor's run over the raw traces."""
    return Command(
        argv=(tools.postprocessor, str(layout.traces), "-j", str(jobs)),
        log=layout.logs / "postprocess.log",
    )


def planned_commands(
    tools: Tools,
    layout: Layout,
    *,
    repeat: int,
    steps: Sequence[int] | None,
    handling: SpinlockHandling,
    postprocess: bool,
    jobs: int,
) -> tuple[tuple[str, Command], ...]:
    """Return every command of a profile with its stage, in order, for `--dry-run`.

    steps: None where the plan decides after the baseline; the commands then hold `<plan>` in its place.
    """
    profile, export = profiled_commands(tools, layout)
    listed: list[tuple[str, Command]] = [
        ("baseline", baseline_command(tools, layout)),
        ("profiled", clocks_command(tools, layout)),
        ("profiled", profile),
        ("profiled", export),
    ]
    if steps is None or steps:
        arguments = (
            (f"--trace-repeat={repeat}", "--trace-steps=<plan>")
            if steps is None
            else trace_arguments(repeat=repeat, steps=steps)
        )
        passes = spinlock_commands(tools, layout, handling=handling, arguments=arguments)
        listed += [("trace", command) for command in passes]
        listed.append(("trace", trace_command(tools, layout, handling=handling, arguments=arguments)))
        if postprocess:
            listed.append(("postprocess", postprocess_command(tools, layout, jobs=jobs)))
    return tuple(listed)
