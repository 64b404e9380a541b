"""Which part of a machine's time a device is, as people write it, and what it is cut into: without a kernel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import base_profiles, find
from gpuloom.gpus.host.cgroups import LEAST_QUOTA_US, MOST_PERIOD_US, PERIOD_US, Limits, bandwidth_us, ranges
from gpuloom.gpus.host.cpu import CpuDevice, Machine, overload, parse_devices, this_machine
from gpuloom.gpus.layouts import every, slices_of

EIGHT = Machine((*range(8),), 8.0, 64_000)
A100 = find("A100")


def one(text: str, machine: Machine = EIGHT) -> CpuDevice:
    (device,) = parse_devices([text], machine)
    return device


def test_all_of_it_but_what_the_runner_needs() -> None:
    device = one("cpu")
    assert (device.cores, device.pinned) == (EIGHT.cores, False)
    assert device.cpus == pytest.approx(7.9)
    assert device.model.mem_mib == pytest.approx(64_000 * 0.9 * 7.9 / 8, abs=8)


@pytest.mark.parametrize(
    ("text", "cores", "cpus"),
    [
        ("cpu:0-3", (0, 1, 2, 3), 3.9),
        ("cpu:5", (5,), 0.9),
        ("CPU:1,6-7=50%", (1, 6, 7), 1.5),
        ("cpu=25%", EIGHT.cores, 2.0),
        (" cpu=100% ", EIGHT.cores, 8.0),
    ],
)
def test_cores_and_parts(text: str, cores: tuple[int, ...], cpus: float) -> None:
    device = one(text)
    assert device.cores == cores
    assert device.cpus == pytest.approx(cpus)
    assert device.pinned == (cores != EIGHT.cores)


def test_several_devices() -> None:
    dealt = parse_devices(["4xcpu"], EIGHT)
    assert [device.cores for device in dealt] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    thirds = parse_devices(["3xcpu"], EIGHT)
    assert [device.cpus for device in thirds] == pytest.approx([7.9 / 3] * 3)
    assert {device.cores for device in thirds} == {EIGHT.cores}
    halves = parse_devices(["cpu=50%", "cpu=50%"], EIGHT)
    for devices in (dealt, thirds, halves):
        assert len({device.uuid for device in devices}) == len(devices)


def test_a_container_with_a_quota_has_less() -> None:
    eight = Machine((*range(8),), 1.0, 8_000)
    assert one("cpu=100%", eight).cpus == pytest.approx(1.0)
    assert one("cpu=100%", eight).model.mem_mib == pytest.approx(7_200, abs=8), "all of it stands for all the memory"
    with pytest.raises(InputError, match="would have 60% of core 0"):
        parse_devices(["cpu=60%", "cpu:0-3=60%"], eight)
    assert one("cpu", Machine((0, 1), 0.5, 8_000)).cpus == pytest.approx(0.4)
    assert one("cpu:1=100%", Machine((0, 1), 0.5, 8_000)).cpus == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["gpu"], "not a device; accepted are cpu"),
        (["cpu:"], "not a device"),
        (["0xcpu"], "not a device"),
        (["cpu:8"], "this machine has no core 8; accepted are 0-7"),
        (["cpu:3-1"], "no core in that range"),
        (["cpu:1-2-3"], "is no core"),
        (["cpu:,"], "is no core"),
        (["cpu=0%"], "more than 0 up to 100"),
        (["cpu=101%"], "more than 0 up to 100"),
        (["cpu=1e3%"], "not a device"),
        (["cpu=..%"], "no part of a core's time"),
        (["cpu=0.1%"], "too little to be cut into sevenths"),
        (["cpu", "cpu:0"], "would have 99% of core 0, of which CPU-0 has 90%"),
        (["cpu:0-1=60%", "cpu:1-2=60%"], "would have 60% of core 1"),
    ],
)
def test_wrong_devices(texts: list[str], sentence: str) -> None:
    with pytest.raises(InputError) as failure:
        parse_devices(texts, EIGHT)
    assert sentence in str(failure.value)


@given(st.text(alphabet="cpu:=%,-x0123456789. ", max_size=16))
def test_whatever_is_written(text: str) -> None:
    """A device of this machine, or one sentence."""
    try:
        devices = parse_devices([text], EIGHT)
    except InputError:
        return
    for device in devices:
        assert {*device.cores} <= {*EIGHT.cores}
        assert 0 < device.cpus <= len(device.cores)
        assert overload(device, [other for other in devices if other != device]) is None


@given(st.floats(0.5, 200), st.integers(1_000, 4_000_000))
def test_the_same_cuts_as_an_a100(cpus: float, mem_mib: int) -> None:
    machine = Machine((*range(200),), 200.0, mem_mib)
    model = one(f"cpu={cpus / 2:f}%", machine).model if mem_mib * cpus / 200 > 2_000 else one("cpu", machine).model
    ours = [(profile.slices, profile.size, profile.starts) for profile in base_profiles(model)]
    assert ours == [(profile.slices, profile.size, profile.starts) for profile in base_profiles(A100)]
    assert len(every(model)) == len(every(A100)) == 298
    for layout in every(model):
        assert sum(model.by_name[instance.profile].mem_mib for instance in layout) <= model.mem_mib
        assert sum(slices_of(model, layout)) <= 7


@given(st.floats(0.001, 512), st.floats(0.001, 512))
def test_quotas_are_what_was_asked_for(cpus: float, other: float) -> None:
    quota, period = bandwidth_us(cpus)
    assert quota >= LEAST_QUOTA_US
    assert PERIOD_US <= period <= MOST_PERIOD_US
    assert quota / period == pytest.approx(cpus, rel=0.002)
    less, more = sorted((cpus, other))
    (quota_1, period_1), (quota_2, period_2) = bandwidth_us(less), bandwidth_us(more)
    assert quota_1 * period_2 <= quota_2 * period_1, "a group's quota fits into that of the one around it"


@given(st.sets(st.integers(0, 40), min_size=1))
def test_ranges_are_the_kernels(cores: set[int]) -> None:
    back: set[int] = set()
    for part in ranges([*cores]).split(","):
        first, _, last = part.partition("-")
        back |= {*range(int(first), int(last or first) + 1)}
    assert back == cores


def test_the_tighter_limit_holds() -> None:
    assert Limits(cpus=0.5).within(0.25, 100) == Limits(cpus=0.25, mem_mib=100)
    assert Limits(cpus=0.1, mem_mib=50, pids=7).within(None, 100) == Limits(cpus=0.1, mem_mib=50, pids=7)


def test_this_machine() -> None:
    machine = this_machine()
    assert machine.cores
    assert 0 < machine.cpus <= len(machine.cores)
    assert machine.mem_mib > 0
