"""Which simulated kernel replaces which measured one, and how long it takes.

Two ways in: a durations file that says it kernel by kernel, or a mapping (`kernel_mapping.json`) together
with the kernels that a simulator log reports. Both end in `KernelDuration`s, and `assign` checks those against
the timeline.

Source: the step-timing page, section 1, "Durations".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cascade_timing.errors import InvalidInputError, UnknownKernelError
from cascade_timing.fields import Fields, Number, fields_of, is_finite_quantity, objects_in, shown
from cascade_timing.timeline import KernelKey, Timeline

_NS_PER_CYCLE_AT_1_MHZ = 1000
"""At 1 MHz a cycle takes 1 µs. [ns · MHz]"""


@dataclass(frozen=True, slots=True)
class KernelDuration:
    """The simulated time of one kernel of the timeline."""

    kernel: KernelKey
    duration_ns: Number
    """0 or more."""


@dataclass(frozen=True, slots=True)
class MappedKernel:
    """One row of `kernel_mapping.json`: a kernel of a simulator log stands for a kernel of the timeline."""

    uid: int
    """The log's `kernel_launch_uid`. One uid may serve several rows."""
    name: str
    """The log's `kernel_name`. The timeline's own name for the kernel may differ."""
    kernel: KernelKey


def parse_durations(document: object) -> tuple[KernelDuration, ...]:
    """The rows of a durations file: `{"gpu_config", "core_clock_mhz", "durations": [...]}`.

    Only repeat, step, seq and duration_ns of each row are read.

    Raises:
        InvalidInputError: a field is missing, not a number, not finite or negative.
    """
    top = fields_of(document, "", what="a durations file with a list of durations")
    return tuple(
        KernelDuration(_key(row), row.number("duration_ns", minimum=0)) for row in top.objects("durations")
    )


def parse_mapping(document: object) -> tuple[MappedKernel, ...]:
    """The rows of a `kernel_mapping.json`.

    Raises:
        InvalidInputError: not a list, or a row lacks one of uid, name, repeat, step, seq.
    """
    return tuple(
        MappedKernel(row.integer("uid"), row.text("name"), _key(row))
        for row in objects_in(document, "kernel_mapping")
    )


def durations_from_kernels(
    mapping: Sequence[MappedKernel] | Sequence[Mapping[str, object]],
    kernels: Iterable[tuple[int | None, str, Number | None]],
    core_clock_mhz: Number,
) -> tuple[KernelDuration, ...]:
    """The duration of every mapped kernel: gpu_sim_cycle / core_clock_mhz · 1000. [ns]

    mapping: `kernel_mapping.json`, parsed or as read.
    kernels: (uid, name, cycles) of each finished kernel of one simulator log, in any order; cycles None where the
        log has no number.
    core_clock_mhz: core clock of the simulated config, above 0. [MHz]

    Raises:
        UnknownKernelError: uid and name of a row match no finished kernel together.
        InvalidInputError: the mapping is malformed, the clock or a mapped kernel's cycle count is not usable, or the
            log reports a mapped kernel twice with different cycles.
    """
    if not (is_finite_quantity(core_clock_mhz) and core_clock_mhz > 0):
        raise InvalidInputError(
            f"the core clock is {shown(core_clock_mhz)} MHz; expected a finite number above 0: "
            "the first value of the config's -gpgpu_clock_domains"
        )
    finished = _by_uid(kernels)
    return tuple(
        KernelDuration(row.kernel, _cycles(row, finished) / core_clock_mhz * _NS_PER_CYCLE_AT_1_MHZ)
        for row in _as_mapping(mapping)
    )


def assign(timeline: Timeline, durations: Iterable[KernelDuration]) -> dict[KernelKey, Number]:
    """The simulated duration of each kernel that has one. [ns]

    Raises:
        UnknownKernelError: a row names a kernel that the timeline lacks.
        InvalidInputError: two rows name the same kernel, or a duration is not finite or negative.
    """
    known = {
        KernelKey(step.repeat, step.step, kernel.seq) for step in timeline.steps for kernel in step.kernels
    }
    assigned: dict[KernelKey, Number] = {}
    for row in durations:
        if row.kernel not in known:
            raise UnknownKernelError(
                f"a duration is given for {row.kernel}, but the timeline has no such kernel; "
                "expected durations and timeline of the same profiled run"
            )
        if row.kernel in assigned:
            raise InvalidInputError(f"{row.kernel} is given two durations; expected one row a kernel")
        if not is_finite_quantity(row.duration_ns):
            raise InvalidInputError(
                f"the duration of {row.kernel} is {shown(row.duration_ns)} ns; expected a finite number, 0 or more"
            )
        assigned[row.kernel] = row.duration_ns
    return assigned


def _key(row: Fields) -> KernelKey:
    return KernelKey(row.integer("repeat"), row.integer("step"), row.integer("seq", minimum=0))


def _as_mapping(mapping: Sequence[MappedKernel] | Sequence[Mapping[str, object]]) -> tuple[MappedKernel, ...]:
    parsed = tuple(row for row in mapping if isinstance(row, MappedKernel))
    return parsed if len(parsed) == len(mapping) else parse_mapping(mapping)


_Finished = dict[int, dict[str, set[Number | None]]]


def _by_uid(kernels: Iterable[tuple[int | None, str, Number | None]]) -> _Finished:
    finished: _Finished = {}
    for uid, name, cycles in kernels:
        if uid is not None:  # a block without a uid can stand for no row
            finished.setdefault(uid, {}).setdefault(name, set()).add(cycles)
    return finished


def _cycles(row: MappedKernel, finished: _Finished) -> Number:
    names = finished.get(row.uid)
    if names is None:
        raise UnknownKernelError(
            f"the kernel mapping names uid {row.uid} ({shown(row.name)}), but the simulator log has no finished "
            f"kernel with that uid; it has {len(finished)} finished kernels. Expected every mapped kernel in the log"
        )
    if row.name not in names:
        met = " and ".join(shown(name) for name in sorted(names))
        raise UnknownKernelError(
            f"the kernel mapping names uid {row.uid} as {shown(row.name)}, but the simulator log names it {met}; "
            "expected uid and name to match together"
        )
    if len(names[row.name]) > 1:
        raise InvalidInputError(
            f"the simulator log reports uid {row.uid} more than once, with different cycles; expected it once"
        )
    (cycles,) = names[row.name]
    if not is_finite_quantity(cycles):
        raise InvalidInputError(
            f"gpu_sim_cycle of uid {row.uid} in the simulator log is {shown(cycles)}; "
            "expected a finite number, 0 or more"
        )
    return cycles
