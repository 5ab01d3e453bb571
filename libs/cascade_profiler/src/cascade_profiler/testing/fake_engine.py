"""An engine without a GPU: `--engine=cascade_profiler.testing.fake_engine:open_engine`.

It launches a handful of named kernels a step, keeps a pretended GPU clock, and does for itself what the injected
libraries would do: under the fake Nsight it logs launches, with a tracer's path in `CUDA_INJECTION64_PATH` it writes
trace files, lists and statistics as the NVBit tracer does.
"""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, monotonic_ns, sleep

from cascade_profiler.engine import EngineFacts, StepReport, TokenReport
from cascade_profiler.errors import CaptureError
from cascade_profiler.steps import StepKind
from cascade_profiler.workload import Workload

CONTEXT = "ctx_0x55d0c8e0"
"""The one CUDA context of the pretended process."""

LAUNCHES_AT_START = 7
"""Kernels that loading a model launches; the tracer counts them, so that trace files do not start at 1."""

NSYS_LOG = "CASCADE_FAKE_NSYS_LOG"
"""Variable with the file that the fake Nsight wants the launches in."""

FAIL = "CASCADE_FAKE_FAIL"
"""Variable that names the stage to fail: baseline, nsys, export, tracer, postprocess or postprocess-silent."""


SAYS = "CASCADE_FAKE_SAYS"
"""Variable with a line that the engine prints, as libraries print what they should not."""

SLOW = "CASCADE_FAKE_WAITS_UNTIL_SENT"
"""Variable that makes the tracer wait, before its fifth kernel, until its first file has been sent and deleted."""

MAX_WAIT_S = 60.0
"""[s] A wait ends here with an error."""


@dataclass(frozen=True, slots=True)
class FakeKernel:
    """One kernel that the pretended model launches. duration_ns: [ns] on the pretended GPU."""

    name: str
    demangled: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    duration_ns: int
    stream: int = 7


SLOTS = FakeKernel(
    "_compute_slot_mapping_kernel", "_compute_slot_mapping_kernel", (2, 1, 1), (1024, 1, 1), 2000
)
NORM = FakeKernel(
    "_ZN4demo8rms_normI6__halfLi4EEEvPKT_PS2_i",
    "void demo::rms_norm<__half, 4>(const __half *, __half *, int)",
    (24, 1, 1),
    (128, 1, 1),
    3400,
)
GEMM = FakeKernel(
    "nvjet_sm90_hsh_64x8_64x16_4x1", "nvjet_sm90_hsh_64x8_64x16_4x1", (9, 4, 1), (384, 1, 1), 4700
)
SIDE = FakeKernel(
    "_Z10swiglu_actPK6__halfPS_i",
    "swiglu_act(const __half *, __half *, int)",
    (48, 1, 1),
    (256, 1, 1),
    6000,
    13,
)
ARGMAX = FakeKernel(
    "_ZN2at6native6argmaxIfEEvPKT_i",
    "void at::native::argmax<float>(const T1 *, int)",
    (1, 1, 1),
    (512, 1, 1),
    5100,
)
FILL = FakeKernel(
    "_ZN2at6native4fillIiEEvPT_i", "void at::native::fill<int>(T1 *, int)", (1, 1, 1), (128, 1, 1), 1100
)
AUTOTUNE = FakeKernel("_Z8autotunev", "autotune()", (132, 1, 1), (256, 1, 1), 900)

STEP_KERNELS = (SLOTS, NORM, GEMM, SIDE, NORM, GEMM, ARGMAX)
"""What every step launches, in order. SIDE runs on another stream, beside what follows it."""

LAUNCH_INTERVAL_NS = 5000
"""[ns] between the starts of two kernels."""

COPY_NS = 700
"""[ns] The copy of the sampled token back to the host, at the end of every step."""


def open_engine(workload: Workload) -> FakeEngine:
    """Return an engine for a workload; fails at once where `CASCADE_FAKE_FAIL` says so."""
    if os.environ.get(FAIL) == "baseline":
        raise CaptureError("the pretended model does not load")
    if said := os.environ.get(SAYS):
        print(said)
    return FakeEngine(workload)


@dataclass(slots=True)
class _Request:
    prompt_tokens: int
    generated: int = 0


class FakeEngine:
    """`engine.Engine` without a GPU."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._requests: dict[str, _Request] = {}
        self._steps = 0
        self._launches = LAUNCHES_AT_START
        self._correlation = 100
        self._label_stack: list[tuple[str, int]] = []
        log = os.environ.get(NSYS_LOG)
        self._nsys = Path(log) if log else None
        self._capturing = False
        injected = os.environ.get("CUDA_INJECTION64_PATH", "")
        self._tracer = FakeTracer(Path(os.environ["TRACES_FOLDER"])) if "tracer_tool" in injected else None
        self._detector = Path(os.environ["TRACES_FOLDER"]) if "spinlock_tool" in injected else None
        self._tracing = False
        self._layers: tuple[str, ...] = ()

    def facts(self) -> EngineFacts:
        """Return a pretended H100 with OPT-125m's shape."""
        return EngineFacts(
            vllm_version="0.21.0",
            gpu_name="NVIDIA H100 80GB HBM3",
            compute_capability=(9, 0),
            model_config={
                "architectures": ["OPTForCausalLM"],
                "hidden_size": 768,
                "num_hidden_layers": 12,
                "num_attention_heads": 12,
                "num_key_value_heads": 12,
                "head_dim": 64,
                "dtype": "float16",
                "quantization": None,
                "tensor_parallel_size": 1,
            },
        )

    def submit(self, request_id: str, prompt: str) -> None:
        """Queue a request; a prompt has a token for each of its words and punctuation marks, and one at the start."""
        self._requests[request_id] = _Request(prompt_tokens=len(prompt.replace(",", " ,").split()) + 1)

    def unfinished(self) -> bool:
        """Return whether any request still needs tokens."""
        return bool(self._requests)

    def step(self) -> StepReport:
        """Run one step: every request gets one token."""
        kind: StepKind = "prefill" if any(r.generated == 0 for r in self._requests.values()) else "decode"
        scheduled = sum(r.prompt_tokens if r.generated == 0 else 1 for r in self._requests.values())
        count = len(self._requests)
        self._launch(kind)
        outputs: list[TokenReport] = []
        contexts: list[int] = []
        for request_id, request in list(self._requests.items()):
            request.generated += 1
            contexts.append(request.prompt_tokens + request.generated - 1)
            finished = request.generated == self._workload.max_tokens
            outputs.append(TokenReport(request_id, request.generated, finished, request.prompt_tokens))
            if finished:
                del self._requests[request_id]
        self._steps += 1
        return StepReport(kind, count, scheduled, outputs, max_context=max(contexts))

    def push_range(self, label: str) -> None:
        """Open a range."""
        self._label_stack.append((label, monotonic_ns()))

    def pop_range(self) -> None:
        """Close the range opened last."""
        label, start_ns = self._label_stack.pop()
        self._log({"range": label, "start": start_ns, "end": monotonic_ns()})

    def synchronize(self) -> None:
        """Do nothing: the pretended GPU has no queue."""

    def capture(self, *, on: bool) -> None:
        """Start or stop logging for the fake Nsight."""
        self._capturing = on

    def trace(self, *, on: bool) -> None:
        """Start or stop writing traces."""
        if self._tracer is None:
            raise CaptureError("no tracer is loaded")
        self._tracing = on

    def module_names(self) -> Sequence[str]:
        """Return OPT-like paths."""
        return [
            "model",
            "model.decoder",
            "model.decoder.layers.10",
            "model.decoder.layers.10.self_attn",
            "lm_head",
        ]

    def trace_only(self, layers: Sequence[str]) -> None:
        """Trace the kernels between the norms in every step from now on."""
        unknown = [layer for layer in layers if layer not in self.module_names()]
        if unknown:
            raise CaptureError(f"the model has no module {', '.join(unknown)}")
        self._layers = tuple(layers)

    def close(self) -> None:
        """Write what the spinlock detector leaves behind."""
        if self._detector is not None:
            folder = self._detector / "spinlock_detection"
            folder.mkdir(parents=True, exist_ok=True)
            name = f"spinlock_run_{os.environ['SPINLOCK_PHASE']}.histogram"
            (folder / name).write_text("0 1\n", encoding="utf-8")
            (folder / "spinlock_instructions.txt").write_text(f"1, {GEMM.name}: 12 13\n", encoding="utf-8")

    def _launch(self, kind: StepKind) -> None:
        kernels = list(STEP_KERNELS)
        if kind == "prefill" and self._nsys is not None:
            kernels.insert(1, FILL)  # only the profiled run launches it
        if kind == "prefill" and self._tracer is not None and not self._layers:
            kernels.insert(4, AUTOTUNE)  # only the traced run launches it
        now_ns = monotonic_ns()
        for index, kernel in enumerate(kernels):
            launched_ns = now_ns + index * LAUNCH_INTERVAL_NS // 100
            self._correlation += 1
            self._log(
                {
                    "kernel": kernel.name,
                    "demangled": kernel.demangled,
                    "grid": kernel.grid,
                    "block": kernel.block,
                    "stream": kernel.stream,
                    "correlation": self._correlation,
                    "api": [launched_ns, launched_ns + 20],
                    "start": now_ns + 2000 + index * LAUNCH_INTERVAL_NS,
                    "end": now_ns + 2000 + index * LAUNCH_INTERVAL_NS + kernel.duration_ns,
                }
            )
            self._launches += 1
            in_layer = bool(self._layers) and kernel in {GEMM, SIDE}
            if self._tracer is not None and (self._tracing or in_layer):
                self._tracer.write(self._launches, kernel)
        self._correlation += 1
        copied_ns = now_ns + 2000 + len(kernels) * LAUNCH_INTERVAL_NS
        self._log(
            {"memcpy": 1, "correlation": self._correlation, "api": [now_ns + 900, now_ns + 950]}
            | {"start": copied_ns, "end": copied_ns + COPY_NS}
        )
        # A step ends when the GPU has finished it, so that walls are longer than the GPU's time in them.
        sleep(max(0, copied_ns + COPY_NS - monotonic_ns()) / 1e9)
        if self._tracer is not None and os.environ.get(FAIL) == "tracer" and self._steps > 0:
            raise CaptureError("the pretended tracer died")

    def _log(self, event: dict[str, object]) -> None:
        if self._nsys is not None and self._capturing:
            with self._nsys.open("a", encoding="utf-8") as log:
                log.write(json.dumps(event) + "\n")


class FakeTracer:
    """Writes raw traces as the NVBit tracer does: one compressed file a kernel, a list and statistics a context."""

    def __init__(self, folder: Path) -> None:
        self._traces = folder / "traces"
        self._traces.mkdir(parents=True, exist_ok=True)
        self._statistics = self._traces / f"stats_{CONTEXT}"
        self._statistics.write_text(
            "kernel id, kernel mangled name, grid_dimX, grid_dimY, grid_dimZ, #blocks, block_dimX, block_dimY, "
            "block_dimZ, #threads, total_insts, total_reported_insts\n",
            encoding="utf-8",
        )
        self._list = self._traces / f"kernelslist_{CONTEXT}"
        self._list.write_text("MemcpyHtoD,0x00007f1c46000000,4096\n", encoding="utf-8")
        self._written: list[Path] = []

    def write(self, number: int, kernel: FakeKernel) -> None:
        """Write one kernel's trace, list line and statistics row."""
        name = f"kernel-{number}-{CONTEXT}.trace.xz"
        if os.environ.get(SLOW) and len(self._written) == 4:
            _wait_until_gone(self._written[0])
        self._written.append(self._traces / name)
        with self._list.open("a", encoding="utf-8") as log:
            log.write(f"{name}\n")
        grid, block = kernel.grid, kernel.block
        blocks, threads = grid[0] * grid[1] * grid[2], block[0] * block[1] * block[2]
        text = (
            f"-kernel name = {kernel.name}\n-kernel id = {number}\n-grid dim = ({grid[0]},{grid[1]},{grid[2]})\n"
            f"-block dim = ({block[0]},{block[1]},{block[2]})\n-shmem = 0\n-nregs = 32\n-binary version = 90\n"
            "-cuda stream id = 0\n-shmem base_addr = 0x00007f0000000000\n"
            "-local mem base_addr = 0x00007f0001000000\n-nvbit version = 1.7.6\n-accelsim tracer version = 6\n"
            "-enable lineinfo = 0\n\n#traces format = PC mask dest_num [reg_dests] opcode src_num [reg_srcs] "
            "mem_width [adrrescompress?] [mem_addresses] immediate\n\n0 0 0 0 0000 ffffffff 0 EXIT 0 0 0 \n"
        )
        (self._traces / name).write_bytes(lzma.compress(text.encode()))
        shape = ", ".join(map(str, (*grid, blocks, *block, threads)))
        with self._statistics.open("a", encoding="utf-8") as log:
            log.write(f"{name}, {kernel.name}, {shape}, {blocks * 8},{blocks * 8}\n")


def _wait_until_gone(path: Path) -> None:
    deadline_s = monotonic() + MAX_WAIT_S
    while path.exists():
        if monotonic() > deadline_s:
            raise CaptureError(f"{path.name} was not sent within {MAX_WAIT_S:g} s of being closed")
        sleep(0.01)
