"""All that a training is: gathered, sent to newcomers, written to disk, put back. Does not know who is in the group."""

import contextlib
import math
import os
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gpuloom.train.elastic.steps.group import Group
from gpuloom.train.elastic.steps.noise import Noise
from gpuloom.train.elastic.steps.scaling import Ramp

FILE = "elastic.pt"
CHUNK_BYTES = 64 << 20


@dataclass(slots=True)
class At:
    """Where training is: the same on all workers between two steps."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    """Samples of this epoch's permutation that have been visited."""
    batch: int = 0
    visited: int = 0
    """Samples since the beginning."""
    progress: float = 0.0
    """Steps of the initial batch that the steps so far were worth."""
    factor: float = 1.0
    """Of the learning rate, in the last step."""
    finished: bool = False
    samples: int = 0
    """The length of the data set."""
    stepped_at: float = 0.0
    """Monotonic time of the last step, to know how long a change took."""
    ramp: Ramp = field(default_factory=Ramp)
    noise: Noise = field(default_factory=Noise)

    @classmethod
    def read(cls, kept: dict[str, Any]) -> "At":
        return cls(**{**kept, "ramp": Ramp(**kept["ramp"]), "noise": Noise(**kept["noise"])})


@dataclass(slots=True)
class Training:
    """The parts with a state: what the user wrapped, and where it is."""

    model: nn.Module
    optimiser: Any
    scheduler: Any = None
    scaler: Any = None
    at: At = field(default_factory=At)

    def gather(self) -> dict[str, Any]:
        """References, no copies. Buffers that a state dict leaves out are in it too."""
        others = {name: part.state_dict() for name, part in self._others()}
        tensors = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        model = {name: tensor.detach() for name, tensor in tensors.items()}
        return {"model": model, **others, "at": asdict(self.at)}

    def put_back(self, state: dict[str, Any]) -> None:
        tensors = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(state["model"][name])
        for name, part in self._others():
            part.load_state_dict(state[name])
        self.at = At.read(state["at"])

    def _others(self) -> list[tuple[str, Any]]:
        named = {"optimiser": self.optimiser, "scheduler": self.scheduler, "scaler": self.scaler}
        return [(name, part) for name, part in named.items() if part is not None]


@dataclass(frozen=True, slots=True)
class _Hole:
    """Where a tensor was."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize  # type: ignore[no-any-return]


def _walk(value: Any, each: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _walk(one, each) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_walk(one, each) for one in value)
    return each(value) if isinstance(value, torch.Tensor | _Hole) else value


def send_state(group: Group, state: dict[str, Any], lacking: list[int]) -> None:
    """To those who lack it, and to nobody else: first the form with holes, then what belongs there."""
    tensors: list[torch.Tensor] = []

    def cut(tensor: torch.Tensor) -> _Hole:
        tensors.append(tensor.detach())
        return _Hole(tuple(tensor.shape), tensor.dtype, tensor.device.type)

    form = pickle.dumps(_walk(state, cut))
    head = torch.frombuffer(bytearray(form), dtype=torch.uint8).to(group.device)
    _to_all(group, torch.tensor([len(form)], device=group.device), lacking)
    _to_all(group, head, lacking)
    for chunk in _chunks([(tensor.dtype, tensor.nbytes) for tensor in tensors]):
        _to_all(group, torch.cat([tensors[number].to(group.device).reshape(-1) for number in chunk]), lacking)


def _chunks(sizes: list[tuple[torch.dtype, int]]) -> list[list[int]]:
    """Which tensors go together: of a kind, and not too many at once. Every message costs a wait for the other side."""
    found: list[list[int]] = []
    room: dict[torch.dtype, int] = {}
    place: dict[torch.dtype, list[int]] = {}
    for number, (dtype, size) in enumerate(sizes):
        if dtype not in place or size > room[dtype]:
            place[dtype], room[dtype] = [], CHUNK_BYTES
            found.append(place[dtype])
        place[dtype].append(number)
        room[dtype] -= size
    return found


def _to_all(group: Group, tensor: torch.Tensor, lacking: list[int]) -> None:
    under_way = [group.send(tensor, rank) for rank in lacking]
    for work in under_way:
        group.wait(work)


def receive_state(group: Group, source: int) -> dict[str, Any] | None:
    """What the source sends; None if the group fails."""
    length = _received(group, torch.zeros(1, dtype=torch.int64, device=group.device), source)
    if not group.works():
        return None
    form = _received(group, torch.zeros(int(length), dtype=torch.uint8, device=group.device), source)
    if not group.works():
        return None

    holes: list[_Hole] = []

    def note(hole: _Hole) -> _Hole:
        holes.append(hole)
        return hole

    skeleton = _walk(pickle.loads(form.cpu().numpy().tobytes()), note)
    filled: dict[int, torch.Tensor] = {}
    for chunk in _chunks([(hole.dtype, hole.nbytes) for hole in holes]):
        sizes = [math.prod(holes[number].shape) for number in chunk]
        empty = torch.empty(sum(sizes), dtype=holes[chunk[0]].dtype, device=group.device)
        for number, part in zip(chunk, _received(group, empty, source).split(sizes), strict=True):
            filled[number] = part.view(holes[number].shape).to(holes[number].device, copy=True)
    numbers = iter(range(len(holes)))
    state: dict[str, Any] = _walk(skeleton, lambda _: filled[next(numbers)])
    return state if group.works() else None


def _received(group: Group, tensor: torch.Tensor, source: int) -> torch.Tensor:
    group.wait(group.receive(tensor, source))
    return tensor


def save(folder: Path, state: dict[str, Any], launch: str) -> None:
    """Whole or not at all: a draft, on disk, renamed."""
    draft = folder / f"{FILE}.{os.getpid()}"
    try:
        with draft.open("wb") as file:
            torch.save({**state, "launch": launch}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(folder / FILE)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def load(folder: Path, launch: str, resume: bool) -> dict[str, Any] | None:
    """The checkpoint, if there is one of this launch, or any if it is to be resumed."""
    path = folder / FILE
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state if resume or state.pop("launch", None) == launch else None
