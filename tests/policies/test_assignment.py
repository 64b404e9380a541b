"""The table finds what trying every order finds."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.policies.assignment import best_assignment

PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
costs = st.dictionaries(st.sampled_from(PROFILES), st.floats(0.0, 100.0), max_size=5)


@given(st.lists(st.tuples(costs, st.sampled_from(PROFILES)), min_size=1, max_size=5))
def test_it_is_the_best_of_all_orders(cases: list[tuple[dict[str, float], str]]) -> None:
    jobs, profiles = [job for job, _ in cases], [profile for _, profile in cases]
    totals = [
        sum(job[profile] for job, profile in zip(jobs, order, strict=True))
        for order in permutations(profiles)
        if all(profile in job for job, profile in zip(jobs, order, strict=True))
    ]
    found = best_assignment(jobs, profiles)
    if not totals:
        assert found is None
        return
    assert found is not None
    total, chosen = found
    assert total == pytest.approx(min(totals))
    assert sorted(chosen) == sorted(profiles)
    assert total == pytest.approx(sum(job[profile] for job, profile in zip(jobs, chosen, strict=True)))
