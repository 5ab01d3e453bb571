"""`register`: adding the profiler to a user's own Modal app. Modal itself is imported only when it is called.

Functions are serialized, so that the user's app file need not be importable in the container; client and
container must then run the same Python minor version, which the image takes from the client. Their bodies
import what runs in the container themselves: importing this package at home stays light.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cascade_profiler.container import ACCELSIM_DIR, HF_CACHE_DIR, RUNS_DIR
from cascade_profiler.errors import OptionsError
from cascade_profiler.options import S3Destination, SpinlockHandling

if TYPE_CHECKING:
    import modal

TIMEOUT_S = 4 * 3600
"""[s] Modal ends the function after this."""

CUDA_IMAGE = "nvidia/cuda:12.8.1-devel-ubuntu22.04"
"""Has nvcc, which builds the tracer, and NVIDIA's package source for Nsight Systems."""

VLLM_VERSION = "0.21.0"
ACCELSIM_REPOSITORY = "https://github.com/accel-sim/accel-sim-framework.git"
ACCELSIM_COMMIT = "7ba54de"
"""Version 2.0's tracer, whose switches the driver uses."""

PYTHON_MINORS = (11, 12, 13)
"""Python 3 minor versions that both this package and vLLM run on."""


@dataclass(frozen=True, slots=True)
class Profiler:
    """The functions that `register` added to an app; call them with `.remote(...)`.

    profile(workload, trace_steps="plan", trace_repeat=None, spinlock_handling="mark_region",
    keep_nsys_rep=False,
        postprocess=True, run_name=None) returns the content of run.json.
    list_layers(workload) returns module paths.
    stream(workload, layers, spinlock_handling="mark_region", run_name=None) streams into the `s3` of
    `register`.
    """

    profile: modal.Function
    list_layers: modal.Function
    stream: modal.Function


def register(
    app: modal.App,
    volume: modal.Volume,
    *,
    gpu: str = "H100!",
    hf_cache: modal.Volume | None = None,
    s3: Mapping[str, object] | None = None,
    secrets: Sequence[modal.Secret] = (),
    image: modal.Image | None = None,
    timeout_s: int = TIMEOUT_S,
) -> Profiler:
    """Add the profiler's functions to `app`, to run on `gpu` with finished runs on `volume`.

    hf_cache: volume for Hugging Face downloads, so that a model is fetched once.
    s3: where finished runs are uploaded as well: endpoint, bucket, and if wanted prefix, region,
    addressing_style
        and layout. Never credentials: these belong into `secrets`.
    image: an image of your own with vLLM, Nsight Systems and Accel-Sim's tracer; None builds one.

    Raises OptionsError for a destination or a Python version that cannot work.
    """
    if sys.version_info[0] != 3 or sys.version_info[1] not in PYTHON_MINORS:
        raise OptionsError(
            f"Python {sys.version_info[0]}.{sys.version_info[1]} cannot be matched in the GPU image; run this with "
            f"Python 3.{PYTHON_MINORS[0]} to 3.{PYTHON_MINORS[-1]} (3.12 is the tested one)"
        )
    if not gpu:
        raise OptionsError("gpu is empty; name one that Modal offers, such as 'H100!' or 'A100-80GB'")
    destination = None if s3 is None else S3Destination.from_mapping(s3).to_dict()
    volumes = {RUNS_DIR: volume}
    if hf_cache is not None:
        volumes[HF_CACHE_DIR] = hf_cache

    def profile(
        workload: Mapping[str, object],
        *,
        trace_steps: object = "plan",
        trace_repeat: int | None = None,
        spinlock_handling: SpinlockHandling = "mark_region",
        keep_nsys_rep: bool = False,
        postprocess: bool = True,
        run_name: str | None = None,
    ) -> dict[str, object]:
        from cascade_profiler.remote import run_profile

        try:
            return run_profile(
                workload,
                trace_steps=trace_steps,
                trace_repeat=trace_repeat,
                spinlock_handling=spinlock_handling,
                keep_nsys_rep=keep_nsys_rep,
                postprocess=postprocess,
                run_name=run_name,
                s3=destination,
            )
        finally:
            volume.commit()  # a failed run's diagnostics, too, before the container goes away

    def list_layers(workload: Mapping[str, object]) -> list[str]:
        from cascade_profiler.remote import run_list_layers

        return run_list_layers(workload)

    def stream(
        workload: Mapping[str, object],
        layers: list[str],
        spinlock_handling: SpinlockHandling = "mark_region",
        run_name: str | None = None,
    ) -> dict[str, object]:
        from cascade_profiler.remote import run_stream

        if destination is None:
            raise OptionsError("streaming needs a bucket; give register(..., s3={...})")
        return run_stream(
            workload, layers, s3=destination, spinlock_handling=spinlock_handling, run_name=run_name
        )

    built = profiler_image() if image is None else image

    def added(function: Callable[..., object], name: str) -> modal.Function:
        decorate = app.function(
            image=built,
            gpu=gpu,
            volumes=volumes,
            secrets=list(secrets),
            timeout=timeout_s,
            serialized=True,
            name=name,
        )
        return decorate(function)

    return Profiler(
        profile=added(profile, "cascade_profile"),
        list_layers=added(list_layers, "cascade_list_layers"),
        stream=added(stream, "cascade_stream"),
    )


def profiler_image() -> modal.Image:
    """Return the GPU image: CUDA, Nsight Systems, vLLM, Accel-Sim's tracer for every architecture, this
    package."""
    import modal

    tracer = f"{ACCELSIM_DIR}/util/tracer_nvbit"
    return (
        modal.Image.from_registry(CUDA_IMAGE, add_python=f"3.{sys.version_info[1]}")
        .apt_install(
            "git",
            "wget",
            "make",
            "g++",
            "xz-utils",
            "bzip2",
            "libzstd-dev",
            "zlib1g-dev",
            "cuda-nsight-systems-12-8",
        )
        .pip_install(
            f"vllm=={VLLM_VERSION}", "aiobotocore>=2.15", "httpx>=0.27", "pydantic>=2.9", "typer>=0.12"
        )
        .run_commands(
            f"git clone --filter=blob:none {ACCELSIM_REPOSITORY} {ACCELSIM_DIR}",
            f"git -C {ACCELSIM_DIR} checkout {ACCELSIM_COMMIT}",
            f"cd {tracer} && ./install_nvbit.sh && ARCH=all CUDA_INSTALL_PATH=/usr/local/cuda make",
            f"ARCH=all CUDA_INSTALL_PATH=/usr/local/cuda make -C {tracer}/others/spinlock_tool",
        )
        .add_local_python_source("cascade_profiler", "cascade_client")
    )
