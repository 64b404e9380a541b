"""The log's lines: what is written is read, whatever was cut off at the end; what is damaged before it is named."""

import json
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.contract.plan import Plan, Reason
from gpuloom.contract.view import Report
from gpuloom.engine.events import (
    Event,
    GpuCut,
    GpuJoined,
    GpuLeft,
    GpuProbed,
    JobArrived,
    JobReported,
    JobStalled,
    PolicyReset,
    Tick,
)
from gpuloom.engine.log import Header, Scribe, Turn, header_line, read, read_turns
from gpuloom.engine.machine import Decision
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster, Gpu, as_cluster, describe, describe_gpu, parse_cluster
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import GpuModel, Instance, Profile
from gpuloom.perf.speed import Estimate
from gpuloom.work.model import Hints, Job, Kind

ODD = GpuModel("of tomorrow", 1000, 10, 2, (Profile("1g", 3, 1, 1, (0, 1), 500, 5, 2),))
"""As no catalogue has it."""
HEADER = Header("1xA100-40GB,1xA30", "miso", 3, cluster=describe(parse_cluster("1xA100-40GB,1xA30"), ("u", "v")))

texts = st.text(max_size=8)
times = st.floats(0, 1e9)
names = st.sampled_from(["a", 'quo"te', "line\u2028end", '{"Turn":', "ü", "\\"])
layouts = st.sampled_from([(), (Instance(0, "3g.20gb"), Instance(4, "3g.20gb"))])
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Tick, times, texts),
    st.builds(PolicyReset, times, texts),
    st.builds(JobStalled, times, texts, names),
    st.builds(GpuLeft, times, texts, st.integers(0, 9)),
    st.builds(GpuCut, times, texts, st.integers(0, 9), layouts),
    st.builds(JobReported, times, texts, names, st.builds(Report, times, st.integers(0, 5), batches_per_s=times)),
    st.builds(GpuJoined, times, texts, st.just(describe_gpu(Gpu(2, 7, ODD), "uuid"))),
    st.builds(
        GpuProbed, times, texts, st.integers(0, 9), st.dictionaries(names, st.just({"1g": Estimate(0.5, 0.4, 0.6)}))
    ),
    st.builds(
        JobArrived,
        times,
        texts,
        st.builds(Job, names, times, st.sampled_from(Kind), command=st.tuples(texts)),
        st.builds(Hints, times, step_s=st.tuples(times, times)),
    ),
)
decisions = st.builds(
    Decision,
    times,
    texts,
    st.builds(
        Plan,
        st.dictionaries(st.integers(0, 9), layouts),
        st.dictionaries(names, st.tuples(st.builds(Grant, st.integers(0, 9), st.none(), times))),
        st.tuples(st.builds(Reason, names, texts, texts, st.none() | times)),
    ),
    st.none() | texts,
)
turns = st.lists(
    st.tuples(
        st.lists(events, max_size=3).map(tuple), st.none() | decisions, st.none() | st.dictionaries(names, times)
    ),
    max_size=4,
)


def written(told: list[tuple[tuple[Event, ...], Decision | None, object]]) -> list[str]:
    scribe = Scribe()
    return [header_line(HEADER), *(scribe.line(*turn) for turn in told)]


@given(turns)
def test_what_is_written_is_read(told: list[tuple[tuple[Event, ...], Decision | None, object]]) -> None:
    lines = written(told)
    assert all(line.count("\n") == 1 and json.loads(line) for line in lines)
    header, found = read_turns(lines, "log")
    assert header == HEADER
    assert [(turn.events, turn.decision) for turn in found] == [(happened, decision) for happened, decision, _ in told]


@settings(max_examples=50)
@given(turns, st.data())
def test_a_log_that_was_cut_off_anywhere_ends_with_its_last_whole_turn(
    told: list[tuple[tuple[Event, ...], Decision | None, object]], data: st.DataObject
) -> None:
    lines = written(told)
    text = "".join(lines)
    keep = data.draw(st.integers(len(lines[0]), len(text)))
    whole = text[:keep].count("\n") - 1
    found = [*read_turns(split(text[:keep]), "log")[1]]
    assert found == [*read_turns(lines, "log")[1]][:whole]


def split(text: str) -> list[str]:
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


@given(st.data())
def test_a_line_that_was_damaged_is_left_out_at_the_end_and_named_elsewhere(data: st.DataObject) -> None:
    lines = written([((Tick(float(n), "round"),), None, None) for n in range(4)])
    at = data.draw(st.integers(1, 4))
    place = data.draw(st.integers(0, len(lines[at]) - 2))
    letter = data.draw(st.characters(codec="ascii", exclude_characters="\n" + lines[at][place]))
    damaged = [*lines]
    damaged[at] = lines[at][:place] + letter + lines[at][place + 1 :]
    if at == 4:
        assert [turn.number for turn in read_turns(damaged, "log")[1]] == [1, 2, 3]
    else:
        with pytest.raises(InputError, match=f"log:{at + 1}: damaged"):
            list(read(damaged, "log"))


def test_what_has_its_default_value_is_left_out() -> None:
    line = Scribe().line([JobArrived(0.0, "submitted", Job("a"))])
    assert line.startswith(
        '{"Turn":{"number":1,"events":[{"JobArrived":{"at_s":0.0,"cause":"submitted","job":{"id":"a"}}}]}'
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            '{"Header":{"version":3,"of":"tomorrow"},"sum":"x"}\n',
            "log: log version 3, this gpuloom reads versions 1 and 2",
        ),
        (header_line(HEADER)[:-3], "log: not a gpuloom log"),
        (header_line(HEADER).replace("miso", "mist"), "log:1: damaged"),
        ('{"Header":{"gpus":"A100","seed":1,"version":1}}\n', "log:1: not a Header of a gpuloom log: policy is wrong"),
        ("", "log: not a gpuloom log"),
    ],
)
def test_a_header_that_is_none_is_refused(line: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        list(read([line], "log"))
    assert str(refused.value).startswith(says)


def test_a_gpu_that_no_catalogue_has_is_described_in_full() -> None:
    cluster = Cluster((Gpu(0, 0, ODD), Gpu(1, 0, parse_cluster("A30").gpus[0].model)))
    header = Header("of tomorrow", "miso", 0, cluster=describe(cluster, ("u", "v")))
    (found,) = read([header_line(header)], "log")
    assert isinstance(found, Header)
    assert as_cluster(found.cluster) == cluster
    assert [gpu.uuid for gpu in found.cluster] == ["u", "v"]
    assert [gpu.described is None for gpu in found.cluster] == [False, True]


def test_memory_is_written_when_it_has_changed() -> None:
    scribe = Scribe()
    memories = [{"a": 1}, {"a": 1}, None, {"a": 1, "b": 2}]
    lines = [header_line(HEADER), *(scribe.line([], None, memory) for memory in memories)]
    found: list[Turn] = [*read_turns(lines, "log")[1]]
    assert [turn.memory for turn in found] == [{"is": {"a": 1}}, None, None, {"in": {"b": {"is": 2}}}]


def test_an_event_of_a_newer_gpuloom_is_named() -> None:
    line = Scribe().line([Tick(1.0, "round")]).replace('"Tick"', '"Tock"')
    resealed = f'{line[:-21]},"crc32":"{crc32(line[:-21].encode()):08x}"}}\n'
    with pytest.raises(InputError, match="log:2: event 'Tock' is not known to this gpuloom"):
        list(read([header_line(HEADER), resealed], "log"))
