"""A wide two-layer network in numpy: 128 MiB of weights that are read for every batch, whatever its size.

For trying `gpuloom measure service` and `gpuloom serve up --device cpu`: memory is its limit, so batches cost little,
and neighbours who use memory hurt it. Its answers mean nothing. Runs inside Triton's Python backend, without gpuloom.
"""

from typing import Any

import numpy as np
import triton_python_backend_utils as triton  # type: ignore[import-not-found]

INPUTS, WIDTH, HIDDEN, CLASSES = 64, 4096, 8192, 10
Array = np.ndarray[Any, np.dtype[np.float32]]


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002 (Triton's signature)
        dice = np.random.default_rng(3)
        shapes = (INPUTS, WIDTH), (WIDTH, HIDDEN), (HIDDEN, CLASSES)
        self.layers: list[Array] = [
            dice.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0])) for shape in shapes
        ]

    def execute(self, requests: list[Any]) -> list[Any]:
        """All requests of a batch at once."""
        inputs = [triton.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        answers = np.split(self.infer(np.concatenate(inputs)), np.cumsum([len(x) for x in inputs])[:-1])
        return [triton.InferenceResponse([triton.Tensor("y", y)]) for y in answers]

    def infer(self, x: Array) -> Array:
        first, second, last = self.layers
        y: Array = np.maximum(np.maximum(x @ first, 0.0) @ second, 0.0) @ last
        return y
