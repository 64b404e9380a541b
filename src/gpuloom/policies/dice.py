"""A policy's dice as JSON can hold them, so that a policy that is restored throws what the other one would have."""

from typing import Any

import numpy as np


def dice_of(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


def remembered(dice: np.random.Generator) -> list[Any]:
    state: Any = dice.bit_generator.state
    return [[int(word) for word in state["state"]["state"]], int(state["has_uint32"]), int(state["uinteger"])]


def restore_dice(dice: np.random.Generator, memory: Any) -> None:
    words, has_uint32, uinteger = memory
    dice.bit_generator.state = {
        "bit_generator": "SFC64",
        "state": {"state": np.array(words, dtype=np.uint64)},
        "has_uint32": int(has_uint32),
        "uinteger": int(uinteger),
    }
