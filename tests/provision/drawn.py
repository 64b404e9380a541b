"""What hypothesis draws for tests of planners: services; and settings for tests in which every example is a plan."""

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from gpuloom.provision.demand import Demand, Pattern
from gpuloom.work.model import Service

MODELS = ("alexnet", "resnet50", "vgg19", "ssd")
"""That figures ship of."""
NAMES = ("a", "b", "c", "d", "e", "f", "g", "h")
EXACT = 1.0 + 1e-3
"""How far above an SLO a p99 may be said to be: the queue's solution has an error of its own."""
STEADY = (Pattern.POISSON, Pattern.REGULAR)


def plans(examples: int) -> settings:
    """Without shrinking: a plan takes a fraction of a second."""
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )


@st.composite
def services(
    draw: st.DrawFn,
    most: int = 6,
    models: tuple[str, ...] = MODELS,
    rate_rps: tuple[float, float] = (1.0, 800.0),
    slo_ms: tuple[float, float] = (8.0, 200.0),
    most_mib: int = 20_000,
) -> tuple[Service, ...]:
    """With names of their own, in any order."""
    return tuple(
        Service(
            name,
            draw(st.sampled_from(models)),
            draw(st.floats(*rate_rps)),
            draw(st.floats(*slo_ms)),
            draw(st.none() | st.integers(1, most_mib)),
            max_batch=draw(st.none() | st.integers(1, 40)),
        )
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=most, unique=True))
    )


def demands(
    most: int = 6, models: tuple[str, ...] = MODELS, patterns: tuple[Pattern, ...] = STEADY
) -> st.SearchStrategy[Demand]:
    return st.builds(Demand, services(most, models), st.sampled_from(patterns))


@st.composite
def common_services(draw: st.DrawFn, most: int, models: tuple[str, ...]) -> tuple[Service, ...]:
    """Of a few promises, memories and batches: what MIG instances can do for such services is found once for all."""
    return tuple(
        Service(
            name,
            draw(st.sampled_from(models)),
            draw(st.floats(1.0, 800.0)),
            draw(st.sampled_from([9.0, 20.0, 45.0, 120.0])),
            draw(st.sampled_from([None, None, 6000, 17_000])),
            max_batch=draw(st.sampled_from([None, None, 4])),
        )
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=most, unique=True))
    )


def common_demands(most: int, models: tuple[str, ...]) -> st.SearchStrategy[Demand]:
    return st.builds(Demand, common_services(most, models), st.sampled_from(STEADY))
