"""A small transformer encoder in numpy: four layers over 64 tokens. Much computing for few weights.

For trying `gpuloom measure service` and `gpuloom serve up --device cpu`. Its weights are random, so its answers mean
nothing. Runs inside Triton's Python backend, without gpuloom.
"""

from typing import Any

import numpy as np
import triton_python_backend_utils as triton  # type: ignore[import-not-found]

TOKENS, WIDTH, HEADS, LAYERS, CLASSES = 64, 192, 4, 4, 10
Array = np.ndarray[Any, np.dtype[np.float32]]


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002 (Triton's signature)
        dice = np.random.default_rng(2)

        def weights(*shape: int) -> Array:
            drawn: Array = dice.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))
            return drawn

        self.embed = weights(TOKENS, WIDTH)
        self.layers = [
            (weights(WIDTH, 3 * WIDTH), weights(WIDTH, WIDTH), weights(WIDTH, 4 * WIDTH), weights(4 * WIDTH, WIDTH))
            for _ in range(LAYERS)
        ]
        self.head = weights(WIDTH, CLASSES)

    def execute(self, requests: list[Any]) -> list[Any]:
        """All requests of a batch at once."""
        inputs = [triton.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        answers = np.split(self.infer(np.concatenate(inputs)), np.cumsum([len(x) for x in inputs])[:-1])
        return [triton.InferenceResponse([triton.Tensor("y", y)]) for y in answers]

    def infer(self, x: Array) -> Array:
        tokens = x[:, :, None] * self.embed
        for into, out, wide, narrow in self.layers:
            tokens = tokens + attention(_normal(tokens) @ into) @ out
            tokens = tokens + np.maximum(_normal(tokens) @ wide, 0.0) @ narrow
        y: Array = _normal(tokens).mean(axis=1) @ self.head
        return y


def attention(joined: Array) -> Array:
    items = len(joined)
    query, key, value = joined.reshape(items, TOKENS, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)
    weight = np.exp(query @ key.swapaxes(-1, -2) / np.float32(np.sqrt(WIDTH / HEADS)))
    weight /= weight.sum(axis=-1, keepdims=True)
    seen: Array = (weight @ value).swapaxes(1, 2).reshape(items, TOKENS, WIDTH)
    return seen


def _normal(x: Array) -> Array:
    scaled: Array = (x - x.mean(axis=-1, keepdims=True)) / (x.std(axis=-1, keepdims=True) + np.float32(1e-5))
    return scaled
