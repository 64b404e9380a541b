"""An ONNX file as a model of Triton's Python backend, for a Triton without a backend for ONNX.

Runs inside the server, not in gpuloom, with the onnxruntime that is installed there. Lies beside its model.onnx. What
it takes and gives is read from the file, whose first size has to be free: that is the batch.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-not-found]
import triton_python_backend_utils as triton  # type: ignore[import-not-found]

FILE = Path(__file__).with_name("model.onnx")
KINDS = {
    "tensor(float)": "TYPE_FP32", "tensor(double)": "TYPE_FP64", "tensor(float16)": "TYPE_FP16",
    "tensor(int64)": "TYPE_INT64", "tensor(int32)": "TYPE_INT32", "tensor(int16)": "TYPE_INT16",
    "tensor(int8)": "TYPE_INT8", "tensor(uint8)": "TYPE_UINT8", "tensor(bool)": "TYPE_BOOL",
    "tensor(string)": "TYPE_STRING",
}  # fmt: skip


def session() -> Any:
    there = onnxruntime.get_available_providers()
    wanted = [name for name in ("CUDAExecutionProvider", "CPUExecutionProvider") if name in there]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 0  # as many as it may use
    return onnxruntime.InferenceSession(str(FILE), options, providers=wanted)


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        here = session()
        for tensor in here.get_inputs():
            config.add_input(_told(tensor))
        for tensor in here.get_outputs():
            config.add_output(_told(tensor))
        return config

    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002 (Triton's signature)
        self.session = session()
        self.inputs = [tensor.name for tensor in self.session.get_inputs()]
        self.outputs = [tensor.name for tensor in self.session.get_outputs()]

    def execute(self, requests: list[Any]) -> list[Any]:
        """All requests of a batch at once."""
        given = {name: [_of(request, name) for request in requests] for name in self.inputs}
        ends = np.cumsum([len(x) for x in given[self.inputs[0]]])[:-1]
        found = self.session.run(self.outputs, {name: np.concatenate(parts) for name, parts in given.items()})
        shared = [np.split(y, ends) for y in found]
        answers = zip(*shared, strict=True)
        return [triton.InferenceResponse([*map(triton.Tensor, self.outputs, parts)]) for parts in answers]


def _of(request: Any, name: str) -> Any:
    return triton.get_input_tensor_by_name(request, name).as_numpy()


def _told(tensor: Any) -> dict[str, Any]:
    """Without its first size, which is the batch's."""
    sizes = [size if isinstance(size, int) else -1 for size in tensor.shape[1:]]
    return {"name": tensor.name, "data_type": KINDS[tensor.type], "dims": sizes or [1]}
