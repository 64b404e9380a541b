"""A small network that really computes: an MLP-Mixer of six blocks in numpy, half a gigaflop a sample.

For trying `gpuloom serve up --device cpu`. Its weights are random, so its answers mean nothing; the work is that of one
whose weights are not. Runs inside Triton's Python backend, without gpuloom.
"""

from typing import Any

import numpy as np
import triton_python_backend_utils as triton  # type: ignore[import-not-found]

TOKENS, WIDTH, HIDDEN, BLOCKS, CLASSES = 64, 256, 1024, 6, 10
Array = np.ndarray[Any, np.dtype[np.float32]]


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002 (Triton's signature)
        dice = np.random.default_rng(1)

        def weights(*shape: int) -> Array:
            drawn: Array = dice.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))
            return drawn

        self.embed = weights(TOKENS, WIDTH)
        self.blocks = [(weights(TOKENS, TOKENS), weights(WIDTH, HIDDEN), weights(HIDDEN, WIDTH)) for _ in range(BLOCKS)]
        self.head = weights(WIDTH, CLASSES)

    def execute(self, requests: list[Any]) -> list[Any]:
        """All requests of a batch at once: that is what batching is for."""
        inputs = [triton.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        ends = np.cumsum([len(x) for x in inputs])[:-1]
        answers = np.split(self.infer(np.concatenate(inputs)), ends)
        return [triton.InferenceResponse([triton.Tensor("y", y)]) for y in answers]

    def infer(self, x: Array) -> Array:
        tokens = x[:, :, None] * self.embed  # each of the 64 numbers becomes a vector
        for across, wide, narrow in self.blocks:
            tokens = tokens + across @ _normal(tokens)
            hidden = np.maximum(_normal(tokens).reshape(-1, WIDTH) @ wide, 0.0)
            tokens = tokens + (hidden @ narrow).reshape(tokens.shape)
        y: Array = _normal(tokens).mean(axis=1) @ self.head
        return y


def _normal(x: Array) -> Array:
    scaled: Array = (x - x.mean(axis=-1, keepdims=True)) / (x.std(axis=-1, keepdims=True) + np.float32(1e-5))
    return scaled
