"""Where a run's numbers come from, in sentences that must stand above them. Pure.

spec: agents, Rules. A newer app says for each sim what made its numbers; for older ones the stand-in's known signs
decide.
"""

from collections.abc import Collection, Sequence
from typing import Final, Literal

from cascade_accelsim.demangle import readable_name
from pydantic import BaseModel, ConfigDict

from cascade_client.wire.results import KernelStat
from cascade_client.wire.runs import RunDetail, SimState, SimSummary
from cascade_client.wire.traces import TraceDetail

Kind = Literal[
    "stand-in", "estimate", "reconstructed", "sample", "recorded", "clock", "overlap", "partial", "unknown"
]

TimeWord = Literal["simulated", "estimated", "replayed", "mixed"]
"""How the times of sims are called: never simulated where nothing was."""

_WORDS: Final[dict[str | None, TimeWord]] = {"estimate": "estimated", "replay": "replayed"}

RECORDED_OPT_KERNELS: Final = frozenset(
    {
        "nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_TNT",
        "reshape_and_cache_flash_kernel",
        "cutlass::device_kernel",
        "vectorized_elementwise_kernel",
    }
)
"""Readable names in the recorded OPT-125m log that a default deployment of older versions replays."""

RECORDED_BABELSTREAM_KERNELS: Final = frozenset(
    {"init_kernel", "copy_kernel", "mul_kernel", "add_kernel", "triad_kernel", "dot_kernel"}
)


class Statement(BaseModel):
    """One thing to know before reading the numbers."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    text: str


def statements_of(
    run: RunDetail, *, trace: TraceDetail | None, kernels: Sequence[KernelStat]
) -> list[Statement]:
    """Everything that must be said, the gravest first."""
    names = {kernel.kernel_name for kernel in kernels}
    found: list[Statement] = []

    def say(kind: Kind, text: str) -> None:
        found.append(Statement(kind=kind, text=text))

    if stand_in := _stand_in(run, trace, names):
        say("stand-in", stand_in)
    if run.replay:
        say(
            "recorded",
            "The sims play a sample's recorded Accel-Sim results again. Nothing was simulated anew.",
        )
    if run.sample:
        say("sample", "This run came with Cascade. Its results were not computed in this workspace.")
    provenance = trace.metadata.get("provenance") if trace is not None and trace.metadata else None
    if isinstance(provenance, str) and provenance.strip():
        say("reconstructed", f"The trace says of itself: {provenance.strip()}")
    elif run.trace.sample:
        say(
            "reconstructed",
            "The trace came with Cascade. It was reconstructed from published statistics, not captured.",
        )
    if estimated := _count(run, "estimate"):
        say(
            "estimate",
            f"{_of(estimated, run)} estimated: the analytical model predicted these cycles from the trace and the "
            "GPU config. No simulator ran.",
        )
    for clock, configs in _other_clocks(run).items():
        say(
            "clock",
            f"The logs of {', '.join(configs)} state a core clock of {clock:g} MHz, which is not the config's. Times "
            "follow the config's clock.",
        )
    if overlapping := sum(kernel.since_last_completion for kernel in kernels):
        say(
            "overlap",
            f"{overlapping} of {len(kernels)} kernels overlapped others: their times count from the previous "
            "completion and are no durations. The totals hold.",
        )
    if cut := sum(kernel.partial for kernel in kernels):
        say("partial", f"{cut} of {len(kernels)} kernels were cut by a simulation limit.")
    silent = sum(sim.engine is None and sim.kernels_done > 0 for sim in run.sims)
    if silent and not any(statement.kind in ("stand-in", "recorded", "sample") for statement in found):
        say("unknown", f"{_of(silent, run)} made by a simulator that did not say what it is.")
    return found


def time_word(sims: Sequence[SimSummary]) -> TimeWord:
    """The word for the times of these sims. One that finished no kernel has none, and counts only where none has.

    A sim that does not name its engine is taken for a simulator, as the dashboard takes it; a statement says so.
    """
    telling = [sim for sim in sims if sim.kernels_done > 0] or sims
    words = {_WORDS.get(sim.engine, "simulated") for sim in telling}
    if len(words) > 1:
        return "mixed"
    return words.pop() if words else "simulated"


def numbers_are_of_the_trace(
    run: RunDetail, trace: TraceDetail | None, kernel_names: Collection[str]
) -> bool:
    """Whether the numbers describe the run's trace at all, as a stand-in's do not."""
    return _stand_in(run, trace, kernel_names) is None


def _stand_in(run: RunDetail, trace: TraceDetail | None, kernel_names: Collection[str]) -> str | None:
    if run.replay or run.sample:
        return None  # recorded results of this very trace
    if replayed := _count(run, "replay"):
        return (
            f"{_of(replayed, run)} replayed by the stand-in simulator: the numbers come from a recorded Accel-Sim log. "
            "They do not describe this trace, and configs cannot be compared from them."
        )
    signs = stand_in_signs(run, trace, kernel_names)
    if not signs:
        return None
    return (
        f"The numbers look like the stand-in simulator's: {'; '.join(signs)}. If so, they come from a recorded log and "
        "do not describe this trace, and configs cannot be compared from them."
    )


def stand_in_signs(run: RunDetail, trace: TraceDetail | None, kernel_names: Collection[str]) -> list[str]:
    """Signs of a stand-in among sims that did not say what made their numbers."""
    undeclared = [sim for sim in run.sims if sim.engine is None]
    if not undeclared:
        return []
    signs = []
    if odd := next(filter(_counts_disagree, undeclared), None):
        signs.append(f"a sim finished {odd.kernels_done} kernels where the trace has {odd.kernels_total}")
    names = {readable_name(name) for name in kernel_names}
    model = run.trace.model
    other_model = model is not None and "opt-125m" not in model.lower()
    if other_model and len(names & RECORDED_OPT_KERNELS) >= 3:
        signs.append(f"its kernels are those of OPT-125m, and the trace is of {model}")
    own = {readable_name(kernel.name) for kernel in trace.kernels} if trace is not None else set()
    foreign = bool(names and own) and not names & own
    if foreign:
        signs.append("none of its kernels is in the trace")
    if names and names <= RECORDED_BABELSTREAM_KERNELS and (foreign or not own):
        signs.append("its kernels are BabelStream's")
    return signs


def _other_clocks(run: RunDetail) -> dict[float, list[str]]:
    """Configs by the clock that their logs state, where it is not theirs. [MHz]"""
    found: dict[float, list[str]] = {}
    for sim in run.sims:
        if sim.log_clock_mhz is not None:
            configs = found.setdefault(sim.log_clock_mhz, [])
            if sim.gpu_config not in configs:
                configs.append(sim.gpu_config)
    return found


def _counts_disagree(sim: SimSummary) -> bool:
    return sim.kernels_done > sim.kernels_total or (
        sim.state is SimState.SUCCEEDED and sim.kernels_done != sim.kernels_total
    )


def _count(run: RunDetail, engine: str) -> int:
    return sum(sim.engine == engine for sim in run.sims)


def _of(count: int, run: RunDetail) -> str:
    if count == len(run.sims):
        return "Every sim's numbers were" if count > 1 else "The sim's numbers were"
    return f"The numbers of {count} of {len(run.sims)} sims were"
