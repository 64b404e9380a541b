"""What a server tells of itself."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.serve.triton.scrape import Counters, parse


def test_tritons_metrics_are_read() -> None:
    text = """# HELP nv_inference_count Number of inferences performed
nv_inference_count{model="w",version="1"} 12
nv_inference_exec_count{model="w",version="1"} 4
nv_inference_queue_duration_us{model="w",version="1"} 6000
nv_inference_pending_request_count{model="w",version="1"} 2
nv_pinned_memory_pool_total_bytes 0
"""
    counters = parse(text)
    assert counters == Counters(12, 4, 6000, 2)
    assert (counters.mean_batch, counters.mean_queue_ms) == (3.0, 0.5)
    assert counters.since(Counters(6, 3, 0, 9)) == Counters(6, 1, 6000, 2)
    assert counters.since(Counters(100, 3, 0, 9)) == counters  # another server's
    assert parse("").mean_batch is None


COUNTS = st.integers(0, 10**15)


@settings(deadline=None, max_examples=50)
@given(COUNTS, COUNTS, COUNTS, COUNTS, st.sampled_from(["{:d}", "{:.1f}", "{:.17e}"]))
def test_any_number_is_read_as_it_was_written(
    inferences: int, executions: int, queue_us: int, pending: int, form: str
) -> None:
    names = ("count", "exec_count", "queue_duration_us", "pending_request_count")
    values = (inferences, executions, queue_us, pending)
    lines = [
        f'nv_inference_{name}{{model="m",version="1"}} {form.format(value)}'
        for name, value in zip(names, values, strict=True)
    ]
    assert parse("\n".join(lines)) == Counters(*values)


@settings(deadline=None, max_examples=200)
@given(st.text(st.sampled_from("nv_inference_count{} 0123456789.eE+-NaIf\n"), max_size=40))
def test_anything_else_counts_nothing_or_something(text: str) -> None:
    counters = parse(f"nv_inference_count{{}} {text}\n{text}")
    assert counters.inferences >= 0.0


@settings(deadline=None, max_examples=50)
@given(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), st.tuples(COUNTS, COUNTS, COUNTS))
def test_what_was_added_since(before: tuple[int, int, int, int], more: tuple[int, int, int]) -> None:
    earlier = Counters(*before)
    later = Counters(before[0] + more[0], before[1] + more[1], before[2] + more[2], pending=7)
    assert later.since(earlier) == Counters(*more, 7)
    assert later.since(None) == later
