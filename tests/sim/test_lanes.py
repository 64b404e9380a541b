"""Where segments are drawn: slices at their memory units, shares of a device beside each other and never over."""

from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.gpus.cluster import parse_cluster
from gpuloom.gpus.grant import Grant
from gpuloom.gpus.model import Instance
from gpuloom.sim.lanes import Band, bands, place, slots
from gpuloom.sim.run import simulate
from gpuloom.sim.scenario import Scenario
from gpuloom.sim.timeline import Segment
from gpuloom.work.traces import read_trace

CLUSTER = parse_cluster("2xA100-40GB")
SLICE = Instance(4, "3g.20gb")


def test_a_slice_is_drawn_at_its_memory_units() -> None:
    small = Instance(0, "1g.5gb")
    segments = [
        Segment(0, 9, name, Grant(0, instance), "running") for name, instance in zip("ab", (small, SLICE), strict=True)
    ]
    whole = Segment(0, 9, "c", Grant(1), "running")
    assert bands([*segments, whole], CLUSTER) == [(Band(0, 1 / 8),), (Band(0.5, 0.5),), (Band(0, 1),)]


def test_thirds_fill_a_device_and_stay_in_their_place_through_their_phases() -> None:
    third = Grant(0, SLICE, 100 / 3)
    segments = [
        Segment(0, 5, "a", third, "starting"),
        Segment(0, 30, "b", third, "running"),
        Segment(1, 30, "c", third, "running"),
        Segment(5, 20, "a", third, "running"),
        Segment(20, 30, "d", third, "running"),
    ]
    drawn = bands(segments, CLUSTER)
    assert drawn[0] == drawn[3] == drawn[4]
    assert [round(band.top, 3) for (band,) in drawn] == [0.5, 0.667, 0.833, 0.5, 0.5]
    assert slots(segments) == [0, 1, 2, 0, 0]


def test_a_share_that_fits_no_single_gap_is_drawn_in_pieces() -> None:
    segments = [
        Segment(0, 10, "a", Grant(0, None, 30), "running"),
        Segment(0, 90, "b", Grant(0, None, 40), "running"),
        Segment(10, 90, "c", Grant(0, None, 60), "running"),
    ]
    assert [(round(top, 6), round(height, 6)) for top, height in bands(segments, CLUSTER)[2]] == [(0, 0.3), (0.7, 0.3)]


@st.composite
def shared_devices(draw: st.DrawFn) -> list[Segment]:
    """Jobs that come to one of three devices whenever there is room for their share, and leave."""
    devices = [(0, None), (1, SLICE), (1, Instance(0, "2g.10gb"))]
    busy: dict[int, list[tuple[float, float]]] = {0: [], 1: [], 2: []}
    segments = []
    now_s = 0.0
    for number in range(draw(st.integers(0, 25))):
        now_s += draw(st.sampled_from((0.0, 1.0, 2.5)))
        at, share_pct = draw(st.integers(0, 2)), draw(st.sampled_from((10.0, 25.0, 100 / 3, 50.0)))
        busy[at] = [(end_s, held) for end_s, held in busy[at] if end_s > now_s]
        if sum(held for _, held in busy[at]) + share_pct > 100 + 1e-9:
            continue
        middle_s, end_s = now_s + 1.0, now_s + 1.0 + draw(st.sampled_from((0.5, 3.0, 9.0)))
        busy[at].append((end_s, share_pct))
        grant = Grant(*devices[at], share_pct)
        segments += [
            Segment(now_s, middle_s, f"job-{number}", grant, "starting"),
            Segment(middle_s, end_s, f"job-{number}", grant, "running"),
        ]
    return draw(st.permutations(segments))


@settings(deadline=None)
@given(shared_devices())
def test_shares_never_overlap_and_keep_their_size(segments: list[Segment]) -> None:
    drawn, lanes = bands(segments, CLUSTER), slots(segments)
    whole = {None: 1.0, SLICE: 0.5, Instance(0, "2g.10gb"): 0.25}
    for segment, pieces in zip(segments, drawn, strict=True):
        height = sum(piece.height for piece in pieces)
        assert abs(height - whole[segment.grant.instance] * segment.grant.share_pct / 100) < 1e-5
    for (one, at, lane), (two, to, other) in combinations(zip(segments, drawn, lanes, strict=True), 2):
        if one.grant.device == two.grant.device and one.begin_s < two.end_s and two.begin_s < one.end_s:
            assert lane != other
            for a in at:
                for b in to:
                    assert a.top + a.height <= b.top + 1e-5 or b.top + b.height <= a.top + 1e-5


@settings(deadline=None, max_examples=60)
@given(shared_devices())
def test_every_band_lies_on_its_device(segments: list[Segment]) -> None:
    model = CLUSTER.gpus[0].model
    for segment, pieces in zip(segments, bands(segments, CLUSTER), strict=True):
        device = place(model, segment.grant)
        assert pieces, "somebody who is there is drawn"
        for piece in pieces:
            assert device.top - 1e-9 <= piece.top
            assert piece.top + piece.height <= device.top + device.height + 1e-6


@settings(deadline=None, max_examples=60)
@given(shared_devices())
def test_no_more_lanes_than_ever_shared_at_once(segments: list[Segment]) -> None:
    lanes: dict[object, set[int]] = {}
    for segment, lane in zip(segments, slots(segments), strict=True):
        lanes.setdefault(segment.grant.device, set()).add(lane)
    for device, used in lanes.items():
        here = [segment for segment in segments if segment.grant.device == device]
        busiest = max(
            len({other.job_id for other in here if other.begin_s <= segment.begin_s < other.end_s}) for segment in here
        )
        assert used == set(range(busiest))


@pytest.mark.parametrize("policy", ["whole-fifo", "static:3,2,2", "oracle", "mps-only:3", "miso"])
def test_of_a_whole_run_no_two_bands_overlap(policy: str) -> None:
    jobs = read_trace(Path(), "synthetic", seed=2, jobs=25, gap_s=20.0)
    timeline = simulate(Scenario(jobs, "2xA100-40GB", every_s=10.0), policy, 2, timeline=True).timeline
    assert timeline is not None
    segments = [segment for segment in timeline.segments if segment.job_id]
    drawn = list(zip(segments, bands(segments, CLUSTER), strict=True))
    for (one, here), (two, there) in combinations(drawn, 2):
        if one.grant.gpu == two.grant.gpu and one.begin_s < two.end_s and two.begin_s < one.end_s:
            for a, b in product(here, there):
                assert a.top + a.height <= b.top + 1e-5 or b.top + b.height <= a.top + 1e-5
