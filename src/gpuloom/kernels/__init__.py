"""Kernel-level sharing: profiles, the gap-filling policy, replay; native/ is the data plane in C."""
