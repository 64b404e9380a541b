"""A speed relative to the whole GPU that is not known for certain."""

from typing import NamedTuple


class Estimate(NamedTuple):
    """The speed, with the ends of its 90 % interval."""

    speed: float
    low: float
    high: float
