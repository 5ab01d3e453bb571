"""A trace as the fold of its facts."""

from cascade_core.testing.builders import at
from cascade_core.traces.facts import (
    KernelLaunch,
    RealKernel,
    TraceDiscovered,
    TraceFactUnion,
    TraceFailed,
    TraceObserved,
    TraceReady,
    TraceRemoved,
    TraceUploadCompleted,
)
from cascade_core.traces.state import Trace, TraceState, apply
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

T = "20261107-120000__a.b c"
KERNEL = KernelLaunch(kernel_id=1, name="k", grid=(1, 1, 1), block=(32, 1, 1), instructions=7)


def discovered(seconds: float = 0, *, sample: bool = False) -> TraceDiscovered:
    return TraceDiscovered(trace_id=T, occurred_at=at(seconds), sample=sample)


def observed(
    seconds: float,
    *,
    kernel_count: int = 0,
    size_bytes: int = 10,
    metadata: dict[str, JsonValue] | None = None,
    has_step_timeline: bool = False,
    real_timing: list[RealKernel] | None = None,
) -> TraceObserved:
    return TraceObserved(
        trace_id=T,
        occurred_at=at(seconds),
        kernel_count=kernel_count,
        size_bytes=size_bytes,
        metadata=metadata,
        has_step_timeline=has_step_timeline,
        real_timing=real_timing,
    )


def completed(seconds: float) -> TraceUploadCompleted:
    return TraceUploadCompleted(trace_id=T, occurred_at=at(seconds))


def ready(seconds: float, *, kernel_count: int = 1) -> TraceReady:
    return TraceReady(
        trace_id=T, occurred_at=at(seconds), kernel_count=kernel_count, size_bytes=99, kernels=[KERNEL]
    )


def failed(seconds: float, error: str = "exit 1") -> TraceFailed:
    return TraceFailed(trace_id=T, occurred_at=at(seconds), error=error)


def removed(seconds: float) -> TraceRemoved:
    return TraceRemoved(trace_id=T, occurred_at=at(seconds))


def folded(*facts: TraceFactUnion) -> Trace:
    trace: Trace | None = None
    for fact in facts:
        trace = apply(trace, fact)
    assert trace is not None
    return trace


READY = (discovered(0), observed(2, kernel_count=3), completed(4), ready(6))


def test_the_first_object_starts_an_upload() -> None:
    trace = folded(discovered(5))
    assert (trace.state, trace.created_at, trace.updated_at, trace.kernel_count) == (
        TraceState.UPLOADING,
        at(5),
        at(5),
        0,
    )


def test_nothing_is_known_of_a_trace_before_its_first_object() -> None:
    assert apply(None, ready(1)) is None
    assert apply(None, observed(1)) is None


def test_scans_show_what_has_arrived() -> None:
    trace = folded(
        discovered(0), observed(2, kernel_count=1, size_bytes=5), observed(4, kernel_count=2, size_bytes=9)
    )
    assert (trace.kernel_count, trace.size_bytes, trace.updated_at) == (2, 9, at(4))


def test_an_observation_may_leave_out_the_documents_that_did_not_change() -> None:
    timing = [RealKernel(kernel_id=1, kernel_name="k", duration_ns=1.0)]
    unchanged = observed(4, kernel_count=2).model_copy(update={"documents_unchanged": True})
    trace = folded(discovered(0), observed(2, metadata={"model": "m"}, real_timing=timing), unchanged)
    assert (trace.kernel_count, trace.metadata, trace.real_timing) == (2, {"model": "m"}, tuple(timing))
    assert folded(discovered(0), unchanged).metadata is None
    gone = folded(discovered(0), observed(2, metadata={"model": "m"}, real_timing=timing), observed(4))
    assert (gone.metadata, gone.real_timing) == (None, None)


def test_a_scan_without_news_does_not_touch_the_trace() -> None:
    once = folded(discovered(0), observed(2, kernel_count=1))
    assert apply(once, observed(9, kernel_count=1)) is once


def test_a_whole_upload_is_processed_and_becomes_ready() -> None:
    assert folded(*READY[:3]).state is TraceState.PROCESSING
    trace = folded(*READY)
    assert (trace.state, trace.kernel_count, trace.size_bytes, trace.kernels) == (
        TraceState.READY,
        1,
        99,
        (KERNEL,),
    )


def test_the_kernel_count_of_a_ready_trace_is_that_of_its_processed_list() -> None:
    trace = folded(*READY, observed(8, kernel_count=3, size_bytes=120, has_step_timeline=True))
    assert (trace.kernel_count, trace.size_bytes, trace.has_step_timeline) == (1, 120, True)


def test_real_timing_may_come_late() -> None:
    row = RealKernel(kernel_id=1, kernel_name="k", duration_ns=5.0)
    assert not folded(*READY).has_real_timing
    assert folded(*READY, observed(8, real_timing=[row])).has_real_timing


def test_an_upload_that_the_profiler_calls_failed_fails_without_processing() -> None:
    trace = folded(discovered(0), failed(2, "profiler reported status 'failed' in metadata.json"))
    assert (trace.state, trace.error) == (
        TraceState.FAILED,
        "profiler reported status 'failed' in metadata.json",
    )


def test_a_failed_trace_is_not_processed_again_and_a_ready_one_does_not_fail() -> None:
    gone_wrong = folded(*READY[:3], failed(5))
    assert apply(gone_wrong, completed(6)) is gone_wrong
    assert apply(gone_wrong, ready(6)) is gone_wrong
    good = folded(*READY)
    assert apply(good, failed(9)) is good


def test_a_repeated_discovery_changes_nothing() -> None:
    good = folded(*READY)
    assert apply(good, discovered(9)) is good


def test_a_removed_trace_ignores_what_comes_after_until_it_is_discovered_anew() -> None:
    gone = folded(*READY, removed(9))
    assert gone.removed
    assert apply(gone, observed(10)) is gone
    assert apply(gone, ready(10)) is gone
    anew = folded(*READY, removed(9), discovered(12))
    assert (anew.state, anew.created_at, anew.kernels, anew.removed) == (
        TraceState.UPLOADING,
        at(12),
        (),
        False,
    )


def test_metadata_is_read_with_what_the_product_assumes_where_it_is_silent() -> None:
    bare = folded(discovered(0))
    assert (bare.gpu_arch, bare.text("model"), bare.texts("layers")) == ("sm_90", None, [])
    metadata: dict[str, JsonValue] = {"trace_gpu_arch": "sm_86", "model": "m", "layers": ["a", 1, "b"]}
    told = folded(discovered(0), observed(1, metadata=metadata))
    assert (told.gpu_arch, told.text("model"), told.texts("layers")) == ("sm_86", "m", ["a", "b"])
    odd = folded(discovered(0), observed(1, metadata={"trace_gpu_arch": 86, "model": "", "layers": "a"}))
    assert (odd.gpu_arch, odd.text("model"), odd.texts("layers")) == ("sm_90", None, [])


facts = st.builds(
    lambda kind, seconds, count: {
        "discovered": discovered(seconds),
        "observed": observed(seconds, kernel_count=count, size_bytes=count),
        "completed": completed(seconds),
        "ready": ready(seconds, kernel_count=count),
        "failed": failed(seconds, str(count)),
        "removed": removed(seconds),
    }[kind],
    st.sampled_from(["discovered", "observed", "completed", "ready", "failed", "removed"]),
    st.integers(0, 99),
    st.integers(0, 3),
)
ALLOWED = {
    TraceState.UPLOADING: {TraceState.PROCESSING, TraceState.READY, TraceState.FAILED},
    TraceState.PROCESSING: {TraceState.READY, TraceState.FAILED},
    TraceState.READY: set[TraceState](),
    TraceState.FAILED: set[TraceState](),
}


@given(st.lists(facts, max_size=12))
@settings(max_examples=50)
def test_states_only_move_forward_and_a_neighbours_repeat_changes_nothing(
    history: list[TraceFactUnion],
) -> None:
    trace: Trace | None = None
    for fact in history:
        after = apply(trace, fact)
        assert after is None or apply(after, fact) == after
        if trace is not None and after is not None and not trace.removed and after.state is not trace.state:
            assert after.state in ALLOWED[trace.state]
        trace = after
