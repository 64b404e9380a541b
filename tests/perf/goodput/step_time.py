"""The step time that was fitted, one at a time: what the array code of `goodput` is held against."""

from gpuloom.perf.goodput.goodput import network_s
from gpuloom.perf.goodput.model import StepTimes


def step_s(times: StepTimes, across_nodes: bool, replicas: int, samples: int) -> float:
    """Seconds of a step without accumulation, as fitted."""
    compute = times.a_c + times.b_c * samples
    network = network_s(times, across_nodes, replicas)
    return float((compute**times.gamma + network**times.gamma) ** (1 / times.gamma))
