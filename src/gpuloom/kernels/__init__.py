"""Kernel-level sharing: profiles, the gap-filling policy, replay; csrc/ is the data plane in C."""

SLOWDOWN = 0.1
"""How much others may slow a program down, if it does not say; csrc/loom.h has the same."""
FLOOR = 0.1
"""The part of the device that is a program's own, if it does not say; csrc/loom.h has the same."""
