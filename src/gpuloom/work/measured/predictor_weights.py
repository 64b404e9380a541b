"""The file of the slice predictor's weights: arrays in numpy's own format, with their provenance as JSON beside them.

One set of arrays was trained on everything; for each model family there is a second, small set that has never seen it,
so that a simulation can ask about that family as about a job nobody has measured. Knows the file; what the arrays mean
is in `perf.slices.predictor`.
"""

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuloom.errors import InputError

SHIPPED = Path(__file__).parent / "shipped" / "slices_a100_40gb.npz"
ABOUT = "about"
EVERYTHING = "all"
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Weights:
    arrays: Arrays
    about: Mapping[str, Any]
    """Source, command, errors."""


def load_weights(path: Path = SHIPPED, without_family: str | None = None) -> Weights:
    """The weights trained on everything, or those that have never seen one family."""
    expected = "weights written by `gpuloom train-predictor`"
    try:
        with path.open("rb") as opened:  # by us, because numpy leaves a broken file open
            file = np.load(opened, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise ValueError("one array, not a file of several")
            about = json.loads(str(file[ABOUT]))
            wanted = _prefix(without_family)
            arrays = {name.removeprefix(wanted): file[name] for name in file.files if name.startswith(wanted)}
    except FileNotFoundError:
        raise InputError(f"{path} does not exist: expected {expected}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}): expected {expected}") from None
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        raise InputError(f"{path} is not a file of {expected}") from None
    if not arrays:
        known = ", ".join(about.get("families", []))
        raise InputError(f"{path} has no weights trained without {without_family!r}: it has those without {known}")
    return Weights(arrays, about)


def save_weights(path: Path, everything: Arrays, held_out: Mapping[str, Arrays], about: Mapping[str, Any]) -> None:
    sets = {None: everything} | dict(held_out)
    arrays: dict[str, Any] = {ABOUT: np.array(json.dumps(about))}
    for family, named in sets.items():
        arrays |= {_prefix(family) + name: _in_single(array) for name, array in named.items()}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _in_single(array: NDArray[Any]) -> NDArray[Any]:
    """Seven digits are more than the measurements have."""
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _prefix(without_family: str | None) -> str:
    return f"{EVERYTHING}/" if without_family is None else f"without {without_family}/"
