from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from cascade_estimate.bench import (
    Bench,
    BenchRow,
    SequenceRow,
    config_rank_correlation,
    left_out_coverage,
    summary,
)
from cascade_estimate.bench_logs import LoggedKernel
from cascade_estimate.report import PAGE, PLOT, write_report


def _row(kernel: str, family: str, config: str, simulated: int, estimated: int) -> BenchRow:
    return BenchRow(
        kernel=kernel,
        family=family,
        config=config,
        simulated=simulated,
        estimated=estimated,
        low=estimated - 100,
        high=estimated + 100,
        launch=5000,
        scale=0.1,
        bottleneck="latency",
        trace_bytes=2_000_000,
        warp_instructions=1000,
        simulator_cpu_s=10.0,
        estimate_cpu_s=0.005,
        core_mhz=1000.0,
    )


_ROWS = tuple(
    _row(f"k{number}", family, config, 6000 + 500 * number + extra, 6010 + 500 * number + extra)
    for number, family in enumerate(("stream", "gemm", "tiny"))
    for config, extra in (("A", 0), ("B", 700), ("C", 1400))
)
_BENCH = Bench(
    _ROWS,
    (SequenceRow("twice", 2, "k0", 5500, 6000, 5600),),
    (LoggedKernel("some-log", 5900, 6000, 5800, 6100, 5000),),
    40 << 20,
)


def test_the_page_states_every_bar_and_the_plot_is_xml(tmp_path: Path) -> None:
    write_report(_BENCH, tmp_path)
    page = (tmp_path / PAGE).read_text()
    assert (page.count("| yes |"), page.count("| no |")) == (6, 1)  # ten of ten covered is not 80 %
    assert "| stream | 3 |" in page
    assert "twice 2" in page
    assert "| some-log | 1 |" in page
    assert "not modelled" in page
    root = ElementTree.fromstring((tmp_path / PLOT).read_text())
    assert len(root.findall(".//{*}circle")) == len(_ROWS) + 3


def test_equal_orders_correlate_fully_and_the_summary_is_plain_json() -> None:
    order = config_rank_correlation(_ROWS)
    assert order["cycles"] == order["time"] == order["pairs_apart"] == 1.0
    assert left_out_coverage(_ROWS) <= 1.0
    import json

    assert json.loads(json.dumps(summary(_BENCH), allow_nan=False))["bars"]["cpu_ratio_1000"]
