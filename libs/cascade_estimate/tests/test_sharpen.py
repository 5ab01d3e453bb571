from __future__ import annotations

from pathlib import Path

from cascade_estimate import GpuSpec, cache_key, estimate_trace, sharpened


def test_totals_sharpen_as_kernels_finish(demo_trace: Path, spec: GpuSpec) -> None:
    estimates = estimate_trace(demo_trace, spec)
    none, some = sharpened(estimates, {}), sharpened(estimates, {0: 9000, 3: 7000})
    every = sharpened(estimates, dict.fromkeys(range(8), 6000))
    assert none.cycles == sum(one.cycles for one in estimates)
    assert (none.source, none.simulated) == ("estimated", 0)
    assert [row.source for row in some.kernels].count("simulated") == 2
    assert some.high - some.low < none.high - none.low
    assert (every.source, every.cycles, every.low, every.high) == ("simulated", 48000, 48000, 48000)


def test_the_cache_key_follows_trace_config_and_nothing_else() -> None:
    key = cache_key(trace_sha256="a", config_sha256="b")
    assert key == cache_key(trace_sha256="a", config_sha256="b")
    assert (
        len(
            {
                key,
                cache_key(trace_sha256="b", config_sha256="b"),
                cache_key(trace_sha256="a", config_sha256="a"),
            }
        )
        == 3
    )
