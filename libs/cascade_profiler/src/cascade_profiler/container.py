"""Where things lie in the GPU container. Shared by the image, the mounts and the code that runs inside."""

RUNS_DIR = "/runs"
"""Mount of the volume with finished runs."""

HF_CACHE_DIR = "/root/.cache/huggingface"
"""Mount of the Hugging Face cache volume."""

SCRATCH_DIR = "/tmp"  # noqa: S108  # local disk of a container that nobody else shares

ACCELSIM_DIR = "/opt/accel-sim"
"""Accel-Sim's checkout, with the tracer built."""
