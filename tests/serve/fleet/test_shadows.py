"""Where the larger shares are."""

from hypothesis import given
from hypothesis import strategies as st

from gpuloom.gpus.model import Instance
from gpuloom.provision.plan import Replica
from gpuloom.serve.deployment import slot_of
from gpuloom.serve.fleet.observer import fits
from gpuloom.serve.fleet.shadows import left_pct, shadow_grants
from tests.serve.plans import replica


def test_ten_points_more_or_what_is_left() -> None:
    found = shadow_grants([replica("a", share_pct=30.0), replica("b", gpu=1, share_pct=95.0)])
    assert found["a", 0].share_pct == 40.0
    assert found["b", 0].share_pct == 100.0


def test_a_full_device_sends_its_shadow_to_the_emptiest() -> None:
    full = [replica("a", share_pct=40.0), replica("b", share_pct=60.0), replica("c", gpu=1, share_pct=45.0)]
    found = shadow_grants(full)
    assert (found["a", 0].gpu, found["a", 0].share_pct) == (1, 50.0)
    assert found["b", 0] == full[1].grant  # 55 % are left there: not more than it has
    assert found["c", 0].share_pct == 55.0


def test_a_slice_is_not_replaced_by_another_kind_of_slice() -> None:
    slices = [
        replica("a", instance=Instance(0, "3g.20gb"), share_pct=100.0),
        replica("b", instance=Instance(4, "4g.20gb"), share_pct=10.0),
    ]
    assert shadow_grants(slices)["a", 0] == slices[0].grant


def test_room_that_two_count_on_is_given_once() -> None:
    both = [replica("a", share_pct=45.0), replica("b", share_pct=45.0)]
    found = shadow_grants(both)
    assert fits(found["a", 0], [both[1].grant])
    assert not fits(found["b", 0], [found["a", 0]])


PLANS = st.lists(st.tuples(st.integers(0, 3), st.floats(2.5, 60.0)), min_size=1, max_size=8)


@given(PLANS)
def test_a_shadow_is_never_smaller_and_alone_always_fits(entries: list[tuple[int, float]]) -> None:
    replicas: list[Replica] = []
    for number, (gpu, share) in enumerate(entries):
        one = replica("a", number, gpu=gpu, share_pct=share)
        if left_pct([*(other.grant for other in replicas), one.grant])[one.grant.device] >= 0:
            replicas.append(one)
    for slot, grant in shadow_grants(replicas).items():
        mine = next(one.grant for one in replicas if slot_of(one) == slot)
        others = [one.grant for one in replicas if slot_of(one) != slot]
        assert grant.share_pct >= mine.share_pct
        assert grant.batch == mine.batch
        assert fits(grant, others)
