"""Where the contract was before it had a room of its own: policies that people have written import it from here."""

from gpuloom.contract import *  # noqa: F403
from gpuloom.perf.speed import Estimate as Estimate
