"""What a profile should capture and where it goes, checked before any GPU time is spent.

Credentials are no option: they are read from the environment of the process that uploads
(`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`), and anything that looks like one in an
option is refused, because options end up in `run.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from cascade_profiler.errors import OptionsError
from cascade_profiler.workload import Workload

SpinlockHandling: TypeAlias = Literal["mark_region", "fast_forward", "none"]
TraceSteps: TypeAlias = tuple[int, ...] | Literal["plan"]
UploadLayout: TypeAlias = Literal["run", "cascade"]

SPINLOCK_MODES: Mapping[str, int] = {"none": 0, "fast_forward": 1, "mark_region": 2}
"""The tracer's SPINLOCK_HANDLING_MODE for each name. Source: Accel-Sim 2.0, util/tracer_nvbit."""

_CREDENTIAL_WORDS = re.compile(r"access|secret|token|password|credential|api.?key", re.IGNORECASE)
_RUN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=+@,-]{0,199}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class S3Destination:
    """Where a finished run is uploaded to.

    layout: "run" keeps the profiling run as it is on the volume (`traced/traces/...`); "cascade" lays the
    same files out as a Cascade trace (`metadata.json` and `traces/` on top), so that an app that watches the
    prefix takes it up.
    """

    endpoint: str
    bucket: str
    prefix: str = ""
    region: str = "auto"
    addressing_style: Literal["path", "virtual", "auto"] = "path"
    layout: UploadLayout = "run"

    def __post_init__(self) -> None:
        url = urlsplit(self.endpoint)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise OptionsError(
                f"s3 endpoint {self.endpoint!r} is no URL; give one such as 'https://s3.example.com'"
            )
        if url.username or url.password or url.query:
            raise OptionsError(
                "the s3 endpoint carries credentials; take them out of the URL and set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY in the environment of the GPU function (a Modal secret)"
            )
        if not _BUCKET.fullmatch(self.bucket):
            raise OptionsError(f"{self.bucket!r} is no bucket name (3 to 63 of a-z, 0-9, '.' and '-')")
        if self.addressing_style not in {"path", "virtual", "auto"}:
            raise OptionsError(
                f"addressing_style is {self.addressing_style!r}; use 'path', 'virtual' or 'auto'"
            )
        if self.layout not in {"run", "cascade"}:
            raise OptionsError(f"layout is {self.layout!r}; use 'run' or 'cascade'")
        parts = self.prefix.strip("/").split("/")
        if any(part in {".", ".."} for part in parts):
            raise OptionsError(
                f"s3 prefix {self.prefix!r} holds '.' or '..'; give a plain path such as 'profiles'"
            )
        object.__setattr__(self, "prefix", "/".join(part for part in parts if part))

    def run_prefix(self, run_name: str) -> str:
        """Return what the keys of a run begin with, without a slash at the end."""
        return "/".join(filter(None, (self.prefix, run_name)))

    def uri(self, run_name: str) -> str:
        """Return the run's address, with a slash at the end, such as `s3://my-runs/profiles/my-run/`."""
        return f"s3://{self.bucket}/{self.run_prefix(run_name)}/"

    def to_dict(self) -> dict[str, str]:
        """Return the destination as JSON for `run.json`; it holds no secret by construction."""
        return {
            "endpoint": self.endpoint,
            "bucket": self.bucket,
            "prefix": self.prefix,
            "region": self.region,
            "addressing_style": self.addressing_style,
            "layout": self.layout,
        }

    @classmethod
    def from_mapping(cls, raw: Mapping[str, object]) -> S3Destination:
        """Read the `s3={...}` of `register`. Raises OptionsError for unknown names, and says so for
        secrets."""
        known = ("endpoint", "bucket", "prefix", "region", "addressing_style", "layout")
        for name in sorted(set(raw) - set(known)):
            if _CREDENTIAL_WORDS.search(name):
                raise OptionsError(
                    f"s3 option {name!r} looks like a credential; options are written to run.json. Put it in a "
                    "Modal secret (secrets=[...]) or in the environment of the GPU function instead"
                )
            raise OptionsError(f"s3 has no option {name!r}; it knows {', '.join(known)}")
        for name in ("endpoint", "bucket"):
            if name not in raw:
                raise OptionsError(f"s3 lacks {name!r}; it needs endpoint and bucket")
        for name, value in raw.items():
            if not isinstance(value, str):
                raise OptionsError(f"s3 option {name!r} must be a string, got {value!r}")
        return cls(**raw)  # type: ignore[arg-type]  # names and types were checked above


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """How to profile a workload.

    trace_steps: repeat-local step indices to trace instruction by instruction (0 is the prefill), "plan" to
    let
        `plan.py` choose them from the measured run, or () for timing without traces.
    trace_repeat: the repeat that is traced; None takes the first after the warm-ups.
    keep_nsys_rep: keep Nsight's capture (it holds the process environment) beside the run.
    postprocess: turn raw traces into `kernelslist.g` here; otherwise the app does it.
    stage_timeout_s: [s] limit of one stage.
    """

    trace_steps: TraceSteps = "plan"
    trace_repeat: int | None = None
    spinlock_handling: SpinlockHandling = "mark_region"
    keep_nsys_rep: bool = False
    postprocess: bool = True
    run_name: str | None = None
    s3: S3Destination | None = None
    stage_timeout_s: float = 3600.0 * 3

    def repeat_to_trace(self, workload: Workload) -> int:
        """Return the repeat whose steps are traced."""
        return workload.warmup_repeats if self.trace_repeat is None else self.trace_repeat


def check(workload: Workload, options: ProfileOptions) -> None:
    """Refuse combinations that a profile could not work with, each with what to do instead. Raises OptionsError."""
    if options.keep_nsys_rep and options.s3 is not None:
        raise OptionsError(
            "keep_nsys_rep=True is refused together with s3: Nsight's capture holds the environment of the process, "
            "which must not leave the volume. Drop one of the two"
        )
    if options.s3 is not None and options.s3.layout == "cascade" and options.trace_steps == ():
        raise OptionsError(
            "a run without traced steps is no trace that an app could simulate; give trace_steps, or s3 layout 'run' "
            "to keep its timing"
        )
    check_capture(workload, options)


def check_capture(workload: Workload, options: ProfileOptions) -> None:
    """Refuse what neither a profile nor a stream, which traces layers and no steps, could work with.

    Raises OptionsError.
    """
    if options.spinlock_handling not in SPINLOCK_MODES:
        raise OptionsError(
            f"spinlock_handling is {options.spinlock_handling!r}; use {', '.join(sorted(SPINLOCK_MODES))}"
        )
    if options.run_name is not None:
        check_run_name(options.run_name)
    if options.stage_timeout_s <= 0:
        raise OptionsError(f"stage_timeout_s is {options.stage_timeout_s}; it must be over 0 seconds")
    repeat = options.repeat_to_trace(workload)
    if not workload.warmup_repeats <= repeat < workload.repeats:
        raise OptionsError(
            f"trace_repeat is {repeat}; the steady repeats are {workload.warmup_repeats} to {workload.repeats - 1} "
            "(a warm-up has no kernel timing to compare with)"
        )
    if options.trace_steps and not workload.enforce_eager:
        raise OptionsError(
            "steps cannot be traced with enforce_eager=False: CUDA graphs hide launches from the tracer. "
            "Set enforce_eager=True, or trace_steps=[] for timing only"
        )
    if isinstance(options.trace_steps, tuple):
        _check_steps(options.trace_steps)


def trace_steps_from(raw: object) -> TraceSteps:
    """Read `trace_steps` as users write it: "plan", "0,5" or a list of whole numbers. Raises OptionsError."""
    if raw is None or raw == "plan":
        return "plan"
    if isinstance(raw, str):
        parts = [part.strip() for part in raw.split(",") if part.strip()]
        if not all(part.isascii() and part.isdigit() for part in parts):
            raise OptionsError(f"trace_steps is {raw!r}; write 'plan' or numbers such as '0,5'")
        raw = [int(part) for part in parts]
    if not isinstance(raw, list | tuple):
        raise OptionsError(f"trace_steps is {raw!r}; give 'plan' or a list such as [0, 5]")
    if not all(isinstance(step, int) and not isinstance(step, bool) for step in raw):
        raise OptionsError(f"trace_steps is {raw!r}; every step must be a whole number")
    steps = tuple(sorted(set(raw)))
    _check_steps(steps)
    return steps


def check_run_name(name: str) -> None:
    """Refuse a run name that could not be a directory, an S3 key part and a trace id at once."""
    if not _RUN_NAME.fullmatch(name):
        raise OptionsError(
            f"run name {name!r} cannot be used; take letters, digits and . _ - = + @ , (at most 200, "
            "not starting with a dot)"
        )


def default_run_name(now: datetime, model: str, layers: tuple[str, ...] = ()) -> str:
    """Return a name such as `20261107-120000__facebook_opt-125m`, with the layers behind it if there are
    any."""
    parts = (model, *layers)
    cleaned = (re.sub(r"[^A-Za-z0-9._=+@-]+", "_", part).strip("._") or "model" for part in parts)
    return "__".join((now.strftime("%Y%m%d-%H%M%S"), *cleaned))[:200]


def _check_steps(steps: tuple[int, ...]) -> None:
    if any(step < 0 for step in steps):
        raise OptionsError(f"trace_steps holds {min(steps)}; steps count from 0, the prefill")
