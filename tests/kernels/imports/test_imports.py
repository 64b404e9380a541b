"""Traces written here have the fields, the order of magnitude and the oddities of real ones."""

import gzip
import io
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.kernels.core import U64, Policy, load
from gpuloom.kernels.imports.chrome import _events
from gpuloom.kernels.imports.format import import_profile
from gpuloom.kernels.profile import Launch, Profile, read_profile, write_profile
from gpuloom.kernels.record import Record, runs_of
from gpuloom.kernels.replay import Task, replay

BASE_US = 88437691101.719
"""Kineto counts from baseTimeNanoseconds, with three decimals."""
PID = 392793


def call(name: str, at_us: float, us: float, correlation: int | None, kind: str = "cuda_runtime") -> dict[str, object]:
    args = {"cbid": 211} if correlation is None else {"cbid": 211, "correlation": correlation}
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "pid": PID,
        "tid": PID,
        "ts": BASE_US + at_us,
        "dur": us,
        "args": args,
    }


def work(
    name: str, at_us: float, us: float, correlation: int, stream: int = 7, device: int = 0, kind: str = "kernel",
    **more: object,
) -> dict[str, object]:  # fmt: skip
    args = {"queued": 0, "device": device, "context": 1, "stream": stream, "correlation": correlation} | more
    if kind == "kernel":
        args |= {"blocks per SM": 0.5, "grid": [4, 2, 1], "block": [128, 1, 1], "graph id": 0}
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "pid": device,
        "tid": stream,
        "ts": BASE_US + at_us,
        "dur": us,
        "args": args,
    }


def chrome(path: Path, events: Sequence[object]) -> Path:
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132}, {"id": 1, "name": "NVIDIA A100"}],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1775078550000000000,
    }
    around = [
        {"name": "process_name", "ph": "M", "ts": BASE_US, "pid": 0, "tid": 0, "args": {"name": "python"}},
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": 'aten::"]}',
            "pid": PID,
            "tid": PID,
            "ts": BASE_US,
            "dur": 9.1,
            "args": {},
        },
        {"ph": "s", "id": 1, "pid": PID, "tid": PID, "ts": BASE_US, "cat": "ac2g", "name": "ac2g"},
    ]
    path.write_text(json.dumps({**head, "traceEvents": [*around, *events], "traceName": "x.json"}, indent=2))
    return path


TWO_REQUESTS = [
    call("cudaLaunchKernel", 0, 4, 1),
    call("cuLaunchKernelEx", 10, 4, 2, "cuda_driver"),
    work("gemm", 6, 20, 1),
    work("relu", 26, 5, 2),
    call("cudaStreamSynchronize", 15, 20, None),
    call("cudaLaunchKernel", 50, 4, 3),
    work("gemm", 57, 20, 3),
]


def only_run(path: Path) -> tuple[Launch, ...]:
    profile = import_profile(path)
    assert len(profile.runs) == 1
    return profile.runs[0].launches


def figures(launch: Launch) -> tuple[int, int, int, bool, int]:
    return launch.ran_ns, launch.held_ns, launch.host_ns, launch.waited, launch.gap_ns


def test_a_pytorch_trace_becomes_launches_with_host_times_waits_and_gaps(tmp_path: Path) -> None:
    first, second, third = only_run(chrome(tmp_path / "t.json", TWO_REQUESTS))
    assert figures(first) == (20_000, 26_000, 0, False, 0)
    assert figures(second) == (5_000, 5_000, 10_000, False, 19_000)
    assert figures(third) == (20_000, 27_000, 19_000, True, 0)
    assert first.kernel == third.kernel != second.kernel


def test_device_kernels_and_origin_are_told(tmp_path: Path) -> None:
    path = chrome(tmp_path / "t.json", TWO_REQUESTS)
    profile = import_profile(path)
    assert profile.device == "NVIDIA H100"
    assert profile.source == str(path)
    assert [(one.name, one.grid, one.block) for one in profile.kernels.values()] == [
        ("gemm", "4x2x1", "128x1x1"),
        ("relu", "4x2x1", "128x1x1"),
    ]
    gemm = load().loom_kernel_id(b"gemm", 3, (U64 * 3)(4, 2, 1), (U64 * 3)(128, 1, 1))
    assert profile.runs[0].launches[0].kernel == gemm


def test_ids_that_the_driver_would_not_give_are_counted(tmp_path: Path) -> None:
    names = ["triton_poi_fused_0", "void at::native::vectorized_kernel<4>(int)", "_Z4gemmIfEvi", "nchw(float*)"]
    events = [work(name, 10 * place, 5, 1 + place) for place, name in enumerate(names)]
    events.append(work("Memset (Device)", 90, 1, 9, kind="gpu_memset", bytes=512))
    notes = import_profile(chrome(tmp_path / "t.json", events)).notes
    assert "2 of 5 kernels have demangled names only: for replay, not for gating" in notes
    assert not any("demangled" in note for note in import_profile(nsys(tmp_path / "report.db", *SHORT)).notes)


def test_what_is_imported_can_be_written_read_and_replayed(tmp_path: Path) -> None:
    profile = import_profile(chrome(tmp_path / "t.json", TWO_REQUESTS))
    write_profile(profile, tmp_path / "t.kprof")
    assert read_profile(tmp_path / "t.kprof") == profile
    (outcome,) = replay([Task("a", profile, 0, 5)], Policy.SHARE)
    assert outcome.latencies_ns[0] == 77_000


def test_the_name_of_the_file_does_not_matter_and_it_may_be_compressed(tmp_path: Path) -> None:
    plain = chrome(tmp_path / "t.json", TWO_REQUESTS)
    packed = tmp_path / "trace.txt"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert import_profile(packed).runs == import_profile(plain).runs


def test_a_bare_list_of_events_as_chrome_allows_it(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("\ufeff" + json.dumps(TWO_REQUESTS), encoding="utf-8")
    assert len(only_run(tmp_path / "t.json")) == 3


def test_old_traces_have_other_categories_and_whole_microseconds(tmp_path: Path) -> None:
    where = {"ph": "X", "pid": 0, "tid": "stream 7"}
    events: list[object] = [
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "ts": 1621400, "dur": 4, "args": {"correlation": 9}},
        where | {"cat": "Kernel", "name": "k", "ts": 1621410, "dur": 3, "args": {"correlation": 9}},
        where | {"cat": "Memset", "name": "Memset (Device)", "ts": 1621420, "dur": 1, "args": {"bytes": 64}},
    ]
    profile = import_profile(chrome(tmp_path / "t.json", events))
    assert [(one.name, one.grid) for one in profile.kernels.values()] == [("k", "-"), ("(fill)", "64")]
    assert profile.runs[0].launches[0].held_ns == 13_000


def test_copies_and_fills_count_as_kernels_of_their_size_and_a_plain_copy_waits(tmp_path: Path) -> None:
    events = [
        call("cudaMemcpy", 0, 30, 1),
        work("Memcpy DtoH (Device -> Pageable)", 5, 10, 1, kind="gpu_memcpy", bytes=4096),
        call("cudaMemsetAsync", 40, 2, 2),
        work("Memset (Device)", 44, 1, 2, kind="gpu_memset", bytes=512),
        call("cudaMemcpyAsync", 50, 2, 3),
        work("Memcpy HtoD (Pinned -> Device)", 55, 10, 3, kind="gpu_memcpy", bytes=4096),
    ]
    profile = import_profile(chrome(tmp_path / "t.json", events))
    assert [(one.name, one.grid, one.block) for one in profile.kernels.values()] == [
        ("(copy)", "4096", "-"),
        ("(fill)", "512", "-"),
    ]
    copy = load().loom_kernel_id(b"(copy)", 1, (U64 * 1)(4096), None)
    assert [one.kernel == copy for one in profile.runs[0].launches] == [True, False, True]
    assert [one.waited for one in profile.runs[0].launches] == [False, True, False]


def test_each_stream_of_each_device_is_a_run(tmp_path: Path) -> None:
    events = [work("a", 0, 5, 1), work("b", 1, 5, 2, stream=20), work("c", 2, 5, 3, device=1), work("a", 9, 5, 4)]
    profile = import_profile(chrome(tmp_path / "t.json", events))
    assert [len(run.launches) for run in profile.runs] == [2, 1, 1]
    assert profile.device == "NVIDIA A100, NVIDIA H100"
    assert "runs: device 0 stream 7; device 0 stream 20; device 1 stream 7" in profile.notes


def test_waiting_for_another_stream_is_not_what_a_kernel_costs(tmp_path: Path) -> None:
    events = [
        call("cudaLaunchKernel", 0, 2, 1),
        work("long", 5, 1000, 1),
        call("cudaLaunchKernel", 3, 2, 2),
        work("after", 1007, 10, 2, stream=20),
    ]
    after = import_profile(chrome(tmp_path / "t.json", events)).runs[1].launches[0]
    assert (after.ran_ns, after.held_ns) == (10_000, 12_000)


def test_a_wait_for_another_stream_while_this_one_is_busy_is_not_a_wait_of_this_one(tmp_path: Path) -> None:
    events = [
        call("cudaLaunchKernel", 0, 2, 1),
        work("long", 5, 1000, 1),
        call("cudaEventSynchronize", 10, 20, None),
        call("cudaLaunchKernel", 40, 2, 2),
        work("next", 1006, 10, 2),
        call("cudaLaunchKernel", 45, 2, 3),
        work("last", 1016, 10, 3),
    ]
    launches = only_run(chrome(tmp_path / "t.json", events))
    assert [(one.waited, one.host_ns) for one in launches] == [(False, 0), (False, 40_000), (False, 5_000)]


def test_kernels_of_a_stream_that_overlap_leave_no_gap_and_cost_at_least_what_they_ran(tmp_path: Path) -> None:
    launches = only_run(chrome(tmp_path / "t.json", [work("a", 0, 50, 1), work("b", 10, 5, 2), work("c", 60, 5, 3)]))
    assert [(one.ran_ns, one.held_ns, one.gap_ns) for one in launches] == [
        (50_000, 50_000, 0),
        (5_000, 5_000, 10_000),
        (5_000, 5_000, 0),
    ]


def test_clocks_of_host_and_device_may_differ_a_little(tmp_path: Path) -> None:
    events = [
        call("cudaLaunchKernel", 7, 2, 1),
        work("a", 5, 1000, 1),
        call("cudaLaunchKernel", 20, 2, 2),
        work("b", 1004, 10, 2),
    ]
    first, second = only_run(chrome(tmp_path / "t.json", events))
    assert figures(first) == (1_000_000, 1_000_000, 0, False, 0)
    assert figures(second) == (10_000, 10_000, 15_000, False, 0)


def test_the_run_repeats_so_a_wait_after_the_last_launch_comes_before_the_first(tmp_path: Path) -> None:
    events = [call("cudaLaunchKernel", 0, 2, 1), work("a", 5, 10, 1)]
    waits = [call("cudaDeviceSynchronize", 4, 12, 2)]
    assert not only_run(chrome(tmp_path / "t.json", events))[0].waited
    assert only_run(chrome(tmp_path / "u.json", events + waits))[0].waited


def test_a_cuda_graph_is_one_launch(tmp_path: Path) -> None:
    events = [
        call("cudaGraphLaunch", 0, 5, 1), work("a", 8, 10, 1), work("b", 19, 10, 1), work("c", 12, 30, 1, stream=9),
        call("cudaLaunchKernel", 6, 2, 2), work("a", 43, 10, 2),
        call("cudaGraphLaunch", 60, 5, 3), work("a", 68, 10, 3), work("b", 79, 10, 3), work("c", 72, 30, 3, stream=9),
    ]  # fmt: skip
    profile = import_profile(chrome(tmp_path / "t.json", events))
    (run,) = profile.runs
    assert [(profile.kernels[one.kernel].name, one.ran_ns) for one in run.launches] == [
        ("(graph) a", 34_000),
        ("a", 10_000),
        ("(graph) a", 34_000),
    ]
    assert run.launches[0].kernel == run.launches[2].kernel
    assert profile.kernels[run.launches[0].kernel].grid == "3"


def test_without_the_host_side_kernels_count_as_launched_when_they_started_and_that_is_said(tmp_path: Path) -> None:
    path = chrome(tmp_path / "t.json", [work("a", 0, 10, 1), work("b", 30, 10, 2)])
    profile = import_profile(path)
    assert [figures(one) for one in profile.runs[0].launches] == [
        (10_000, 10_000, 0, False, 20_000),
        (10_000, 10_000, 30_000, False, 0),
    ]
    assert any("2 of 2 kernels are not in the trace" in note for note in profile.notes)


@pytest.mark.parametrize("broken", [{"dur": -3}, {"dur": None}, {"ts": "soon"}, {"ts": 1e300}, {"dur": float("nan")}])
def test_kernels_without_sensible_times_are_left_out_and_counted(tmp_path: Path, broken: dict[str, object]) -> None:
    bad = work("bad", 40, 5, 3) | broken
    profile = import_profile(chrome(tmp_path / "t.json", [work("a", 0, 10, 1), bad, work("a", 60, 10, 2)]))
    assert [one.name for one in profile.kernels.values()] == ["a"]
    assert "1 kernels without sensible times were left out" in profile.notes
    with pytest.raises(InputError, match="none of its 1 GPU kernels has times"):
        import_profile(chrome(tmp_path / "u.json", [bad]))


@pytest.mark.parametrize("odd", [7, None, "x", [], {}, {"ph": "X"}, {"ph": "X", "cat": "kernel", "args": "none"}])
def test_odd_events_harm_nobody(tmp_path: Path, odd: object) -> None:
    assert len(only_run(chrome(tmp_path / "t.json", [odd, work("a\ud800", 0, 10, 1)]))) == 1


def test_a_trace_of_the_cpu_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"t\.json: has no GPU kernels: expected .* GPU activity recorded"):
        import_profile(chrome(tmp_path / "t.json", []))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kept", [0.97, 0.5])
def test_a_trace_that_was_cut_short_is_refused(tmp_path: Path, kept: float, packed: bool) -> None:
    whole = chrome(tmp_path / "t.json", TWO_REQUESTS * 50).read_bytes()
    whole = gzip.compress(whole) if packed else whole
    cut = tmp_path / "cut"
    cut.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(InputError, match=r"cut: (is cut short after|cannot be read)"):
        import_profile(cut)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no kernel trace that can be read"),
        (b"start,end\n1,2\n", r"nsys export --type sqlite"),
        (b"gpuloom-kernel-profile\t1\n", "is a kernel profile already"),
        (b'{"hello": [1]}', 'has no "traceEvents"'),
        (b'{"traceEvents": 7}', 'has no "traceEvents"'),
        (b'{"traceEvents": [}]}', "cut short after 0 events"),
        (b"[" * 100_000, "cut short after 0 events"),
        (b"\x1f\x8b not really", "cannot be read"),
        (b"SQLite format 3\x00 not really", "cannot be read"),
    ],
)
def test_other_files_are_refused_in_a_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"file: .*{said}"):
        import_profile(path)


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match="expected a kernel trace"):
            import_profile(path)


@settings(deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=4), st.one_of(st.text(), st.floats(allow_nan=False)))), st.integers(1, 60)
)
def test_events_are_the_same_wherever_the_file_is_divided_for_reading(events: list[object], chunk: int) -> None:
    text = json.dumps({"deviceProperties": [{"id": 3, "name": "B200"}], "traceEvents": events, "more": [1, {}]})
    names: dict[object, str] = {}
    assert list(_events(io.StringIO(text), Path("t"), names, chunk)) == events
    assert names == {3: "B200"}


@st.composite
def schedules(draw: st.DrawFn) -> list[tuple[int, int, int, bool]]:
    """In-order work of one queue, in microseconds: launched, started, ended, and whether the host waited before it."""
    made: list[tuple[int, int, int, bool]] = []
    launched = ended = 0
    for _ in range(draw(st.integers(1, 12))):
        waited = bool(made) and draw(st.booleans())
        launched = (ended if waited else launched) + draw(st.integers(2, 40))
        started = max(launched, ended) + draw(st.integers(0, 9))
        ended = started + draw(st.integers(1, 50))
        made.append((launched, started, ended, waited))
    return made


@settings(deadline=None)
@given(schedules())
def test_a_trace_means_what_the_data_plane_would_have_recorded(
    tmp_path_factory: pytest.TempPathFactory, made: list[tuple[int, int, int, bool]]
) -> None:
    events: list[object] = []
    for number, (launched, started, ended, waited) in enumerate(made, 1):
        if waited:
            events.append(call("cudaStreamSynchronize", launched - 2, 1, None))
        events += [call("cudaLaunchKernel", launched, 1, number), work("k", started, ended - started, number)]
    profile = import_profile(chrome(tmp_path_factory.mktemp("trace") / "t.json", events))
    (kernel,) = profile.kernels.values()
    records = [
        Record(1, kernel, launched * 1000, ended * 1000, (ended - started) * 1000, waited)
        for launched, started, ended, waited in made
    ]
    assert list(profile.runs) == runs_of(records)[1]


# Nsight Systems

KERNEL_COLUMNS = (
    "start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT, globalPid INT, "
    "demangledName INT, shortName INT, mangledName INT, gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, "
    "blockZ INT"
)
STRINGS = ["", "void gemm<float>(int)", "gemm", "_Z4gemmIfEvi", "cudaLaunchKernel_v7000", "cudaStreamSynchronize_v3020"]
PROCESS = 281_500_000 << 24
LAUNCH, WAIT = 4, 5


def nsys(path: Path, *statements: str, columns: str = KERNEL_COLUMNS) -> Path:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(STRINGS))
        database.execute("CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT)")
        database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA A100-SXM4-40GB')")
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end INT, globalTid INT, correlationId INT, nameId INT)"
        )
        for statement in statements:
            database.execute(statement)
    database.close()
    return path


def kernel_row(
    start: int, end: int, correlation: int, process: int = PROCESS, context: int = 1, stream: int = 7
) -> str:
    where = f"{start}, {end}, 0, {context}, {stream}, {correlation}, {process}"
    return f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({where}, 1, 2, 3, 16, 1, 1, 256, 1, 1)"


def call_row(start: int, end: int, correlation: int, name: int = LAUNCH, process: int = PROCESS) -> str:
    return f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({start}, {end}, {process + 77}, {correlation}, {name})"


SHORT = [
    call_row(1_000, 2_000, 1), kernel_row(5_000, 9_000, 1),
    call_row(3_000, 10_000, 2, WAIT),
    call_row(12_000, 13_000, 3), kernel_row(15_000, 19_000, 3),
]  # fmt: skip


def test_an_nsight_export_becomes_launches(tmp_path: Path) -> None:
    profile = import_profile(nsys(tmp_path / "report.db", *SHORT))
    assert profile.device == "NVIDIA A100-SXM4-40GB"
    assert [figures(one) for one in profile.runs[0].launches] == [
        (4_000, 8_000, 0, False, 3_000),
        (4_000, 7_000, 3_000, True, 0),
    ]


def test_the_name_is_for_people_and_the_id_for_the_driver(tmp_path: Path) -> None:
    (kernel,) = import_profile(nsys(tmp_path / "report.db", *SHORT)).kernels.values()
    assert (kernel.name, kernel.grid, kernel.block) == ("void gemm<float>(int)", "16x1x1", "256x1x1")
    assert kernel.id == load().loom_kernel_id(b"_Z4gemmIfEvi", 3, (U64 * 3)(16, 1, 1), (U64 * 3)(256, 1, 1))


def test_processes_have_correlations_streams_and_waits_of_their_own(tmp_path: Path) -> None:
    other = PROCESS + (1 << 24)
    rows = [call_row(500, 600, 1, process=other), kernel_row(20_000, 21_000, 1, process=other)]
    waits = [call_row(0, 700, 9, WAIT, other)]
    ours, theirs = import_profile(nsys(tmp_path / "report.db", *SHORT, *rows, *waits)).runs
    assert ours == import_profile(nsys(tmp_path / "alone.db", *SHORT)).runs[0]
    assert [one.waited for one in theirs.launches] == [True]


def test_streams_of_two_contexts_are_two_queues(tmp_path: Path) -> None:
    rows = [kernel_row(0, 1_000, 1), kernel_row(2_000, 3_000, 2, context=2)]
    assert len(import_profile(nsys(tmp_path / "report.db", *rows)).runs) == 2


def test_copies_fills_and_whole_graphs_of_an_export(tmp_path: Path) -> None:
    where = "(start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT"
    rows = [
        f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY {where}, bytes INT)",
        f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET {where}, bytes INT)",
        f"CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE {where}, graphId INT)",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (30000, 31000, 0, 7, 8, {PROCESS}, 4096)",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (32000, 33000, 0, 7, 9, {PROCESS}, 64)",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (34000, 39000, 0, 7, 10, {PROCESS}, 3)",
    ]
    profile = import_profile(nsys(tmp_path / "report.db", *SHORT, *rows))
    names = [profile.kernels[one.kernel].name for one in profile.runs[0].launches]
    assert names == ["void gemm<float>(int)"] * 2 + ["(copy)", "(fill)", "(graph 3)"]


def test_an_old_export_with_few_columns_still_tells_the_kernels(tmp_path: Path) -> None:
    rows = ["INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 10, 2), (30, 40, 2)", "DROP TABLE TARGET_INFO_GPU"]
    profile = import_profile(nsys(tmp_path / "report.db", *rows, columns="start INT, end INT, shortName INT"))
    assert [(one.name, one.grid, one.block) for one in profile.kernels.values()] == [("gemm", "-", "-")]
    assert [one.gap_ns for one in profile.runs[0].launches] == [20, 0]
    assert profile.device == "-"
    assert any("not where the host waited" in note for note in profile.notes)


def test_an_export_without_calls_is_still_read(tmp_path: Path) -> None:
    profile = import_profile(nsys(tmp_path / "report.db", *SHORT, "DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME"))
    assert [one.held_ns for one in profile.runs[0].launches] == [4_000, 4_000]


@pytest.mark.parametrize(
    ("columns", "rows", "said"),
    [
        (KERNEL_COLUMNS, [], "has no GPU kernels"),
        (KERNEL_COLUMNS, [kernel_row(9, 5, 1), kernel_row(0, 0, 2)], "none of its 2 GPU kernels has times"),
        (KERNEL_COLUMNS, ["DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL"], "has no table CUPTI_ACTIVITY_KIND_KERNEL"),
        (KERNEL_COLUMNS, [*SHORT, "DROP TABLE StringIds"], "has no table StringIds"),
        ("start INT, end INT", [], "has no column demangledName"),
        ("start INT, shortName INT", [], "has no column end"),
    ],
)
def test_an_export_that_cannot_work_is_refused_with_what_is_missing(
    tmp_path: Path, columns: str, rows: list[str], said: str
) -> None:
    with pytest.raises(InputError, match=rf"report\.db: .*{said}.*: expected"):
        import_profile(nsys(tmp_path / "report.db", *rows, columns=columns))


def test_an_empty_database_and_a_damaged_one(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "empty.db") as database:
        database.execute("CREATE TABLE t (x)")
    database.close()
    with pytest.raises(InputError, match="has no table CUPTI_ACTIVITY_KIND_KERNEL"):
        import_profile(tmp_path / "empty.db")
    whole = nsys(tmp_path / "report.db", *SHORT).read_bytes()
    (tmp_path / "cut.db").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut\.db: cannot be read"):
        import_profile(tmp_path / "cut.db")


def test_importing_changes_nothing_in_the_export(tmp_path: Path) -> None:
    path = nsys(tmp_path / "a report?#.db", *SHORT)
    before = path.read_bytes()
    assert isinstance(import_profile(path), Profile)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
