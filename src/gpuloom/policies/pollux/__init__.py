"""Pollux (OSDI'21), as published."""

from gpuloom.policies.pollux.policy import Pollux as Pollux
