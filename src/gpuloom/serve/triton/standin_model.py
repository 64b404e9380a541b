"""A Triton model that takes as long for a batch as was measured: what is served where there is no GPU.

Runs inside Triton's Python backend, not in gpuloom. Its times come from its configuration. A file beside it may hold a
factor that makes it slower while it serves: how tests and rehearsals force a violation.
"""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as triton  # type: ignore[import-not-found]


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        parameters = json.loads(args["model_config"])["parameters"]
        self.batch_s = [ms / 1000.0 for ms in json.loads(parameters["batch_ms"]["string_value"])]
        self.slowdown = Path(parameters["slowdown_file"]["string_value"])

    def execute(self, requests: list[Any]) -> list[Any]:
        began_s = time.monotonic()
        sizes = [triton.get_input_tensor_by_name(request, "x").shape()[0] for request in requests]
        answers = [triton.InferenceResponse([triton.Tensor("y", np.zeros((size, 1), np.float32))]) for size in sizes]
        ends_s = began_s + self.batch_s[sum(sizes) - 1] * self._factor()
        time.sleep(max(0.0, ends_s - time.monotonic()))
        return answers

    def _factor(self) -> float:
        try:
            return float(self.slowdown.read_text())
        except (OSError, ValueError):
            return 1.0
