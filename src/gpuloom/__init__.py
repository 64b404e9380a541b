"""Sharing GPUs at every time scale: decide, prove the decision on measured data, carry it out, explain it."""

__version__ = "0.1.0"
