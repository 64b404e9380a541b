"""Threads of our own linear algebra: one, since it is on tiny matrices, where threads only get in each other's way.

The library reads that from the environment when it is loaded; what we start must not inherit it.
"""

import importlib
import os

VARIABLE = "OPENBLAS_NUM_THREADS"
_given = os.environ.get(VARIABLE)


def one_for_us() -> None:
    os.environ.setdefault(VARIABLE, "1")


def as_given_for_others(*, load: bool = True) -> None:
    """From here on programs are started: they get what we were given. `load`: our own is to read it before."""
    if load:
        importlib.import_module("numpy")
    if _given is None:
        os.environ.pop(VARIABLE, None)
