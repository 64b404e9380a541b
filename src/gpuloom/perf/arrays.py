"""The array types that all of `perf`, and who asks it, speak of."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.intp]
"""Indices and counts."""
Bools = NDArray[np.bool_]
