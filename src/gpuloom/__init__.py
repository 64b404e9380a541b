"""gpuloom shares GPUs at every time scale: it decides, proves the decision on measured data, carries it out, explains it."""

__version__ = "0.1.0"
