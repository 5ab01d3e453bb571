"""Traces and configs for the tests: the bundled demo trace, the bundled configs, and small texts of our own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cascade_estimate import GpuSpec
from cascade_estimate.meetings import Surroundings

_REPO = Path(__file__).parents[3]
_CONFIGS = _REPO / "configs" / "gpu-simulator"

_HEADER = """\
-kernel name = _Z4testPf
-kernel id = 1
-grid dim = ({blocks},1,1)
-block dim = ({threads},1,1)
-shmem = 0
-nregs = 16
-binary version = 80
-cuda stream id = 0
-shmem base_addr = 0x00007f1b20000000
-local mem base_addr = 0x00007f1b22000000
-nvbit version = 1.7.1
-accelsim tracer version = 5
-enable lineinfo = 0

#traces format = [line_num] PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width
[adrrescompress?] \
[mem_addresses] immediate


"""


def config_texts(name: str) -> tuple[str, str]:
    """gpgpusim.config and trace.config of a bundled config."""
    return (
        (_CONFIGS / "gpgpu-sim/configs/tested-cfgs" / name / "gpgpusim.config").read_text(),
        (_CONFIGS / "configs/tested-cfgs" / name / "trace.config").read_text(),
    )


@pytest.fixture
def texts() -> Callable[[str], tuple[str, str]]:
    return config_texts


@pytest.fixture
def spec() -> GpuSpec:
    return GpuSpec.from_config(*config_texts("SM80_A100"))


@pytest.fixture
def alone() -> Callable[..., Surroundings]:
    """The rest of the machine; by default none of it has work, and L2 holds everything."""

    def surroundings(
        *,
        active: int = 1,
        written_share: float = 0.0,
        room_lines: float = 1e6,
        grid: tuple[int, int, int] = (1, 1, 1),
    ) -> Surroundings:
        return Surroundings(
            active=active,
            grid=grid,
            access={},
            warm=(),
            written_share=written_share,
            room_lines=room_lines,
            brought_lines=1e6,
            l2_lines=1e6,
        )

    return surroundings


@pytest.fixture
def bundled_configs() -> Path:
    return _REPO / "configs"


@pytest.fixture
def demo_trace() -> Path:
    return _REPO / "examples" / "demo-trace"


@pytest.fixture
def shared_estimate() -> Path:
    path = _REPO.parent / "shared" / "estimate"
    if not path.is_dir():
        pytest.skip("the measured kernels are not beside this repository")
    return path


@pytest.fixture
def write_trace(tmp_path: Path) -> Callable[..., Path]:
    """Write a processed trace in which every warp of every block runs the given lines."""

    def write(lines: list[str], *, blocks: int = 1, threads: int = 32, name: str = "kernel-1.traceg") -> Path:
        text = [_HEADER.format(blocks=blocks, threads=threads)]
        for block in range(blocks):
            text.append(f"#BEGIN_TB\n\nthread block = {block},0,0\n\n")
            body = f"insts = {len(lines)}\n" + "".join(line + "\n" for line in lines) + "\n"
            text += [f"warp = {warp}\n{body}" for warp in range((threads + 31) // 32)]
            text.append("#END_TB\n" + ("\n" if block + 1 < blocks else ""))
        path = tmp_path / name
        path.write_text("".join(text))
        return path

    return write
