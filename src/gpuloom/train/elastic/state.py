"""All that a training is: gathered, sent to newcomers, put back. Does not know who is in the group."""

import math
import pickle
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import nn

from gpuloom.train.elastic.settings import ElasticError
from gpuloom.train.elastic.steps.group import Group
from gpuloom.train.elastic.steps.noise import Noise
from gpuloom.train.elastic.steps.scaling import Ramp

CHUNK_BYTES = 64 << 20


@dataclass(slots=True)
class At:
    """Where training is: the same on all workers between two steps."""

    step: int = 0
    epoch: int = 0
    position: int = 0
    """Samples of this epoch's permutation that have been visited."""
    batch: int = 0
    initial: int = 0
    """The batch that the learning rate was chosen for and progress is counted in; 0 in checkpoints of before."""
    visited: int = 0
    """Samples since the beginning."""
    progress: float = 0.0
    """Steps of the initial batch that the steps so far were worth."""
    factor: float = 1.0
    """Of the learning rate, in the last step."""
    finished: bool = False
    samples: int = 0
    """The length of the data set."""
    seed: int = 0
    """Of the permutations: an epoch that was begun with one goes on with it."""
    stepped_at: float = 0.0
    """Monotonic time of the last step, to know how long a change took."""
    ramp: Ramp = field(default_factory=Ramp)
    noise: Noise = field(default_factory=Noise)

    @classmethod
    def read(cls, kept: dict[str, Any]) -> "At":
        return cls(**{**kept, "ramp": Ramp(**kept["ramp"]), "noise": Noise(**kept["noise"])})

    def counted_in(self, initial: int) -> "At":
        """The same in units of another initial batch, which is also the batch to go on with."""
        if self.initial in (0, initial):
            return replace(self, initial=initial)
        by, noise = self.initial / initial, self.noise
        return replace(
            self, initial=initial, batch=initial, progress=self.progress * by, factor=1.0, ramp=Ramp(),
            noise=replace(noise, var_sum=noise.var_sum * by),
        )  # fmt: skip


@dataclass(slots=True)
class Training:
    """The parts with a state: what the user wrapped, and where it is."""

    model: nn.Module
    optimiser: Any
    scheduler: Any = None
    scaler: Any = None
    own: Any = None
    """Whatever else the user wants to be sent and saved."""
    at: At = field(default_factory=At)

    def trained(self) -> list[torch.Tensor]:
        """The optimiser's parameters, as they are now."""
        return [one for group in self.optimiser.param_groups for one in group["params"]]

    def gather(self) -> dict[str, Any]:
        """References, no copies. Buffers that a state dict leaves out are in it too."""
        others = {name: part.state_dict() for name, part in self._others()}
        model = {name: tensor.detach() for name, tensor in self.tensors().items()}
        frozen = [name for name, one in self.model.named_parameters() if not one.requires_grad]
        return {
            "model": model, "frozen": frozen, "groups": self.groups(), "kind": self._kind(), **others,
            "at": asdict(self.at),
        }  # fmt: skip

    def put_back(self, state: dict[str, Any]) -> None:
        self._check_the_model(state["model"])
        with torch.no_grad():
            for name, tensor in self.tensors().items():
                tensor.copy_(state["model"][name])
        self._freeze(state.get("frozen"))
        self._add_groups(state.get("groups", []))
        self._check_the_optimiser(state)
        for name, part in self._others():
            if name in state:  # a checkpoint may be of before this part was wrapped
                part.load_state_dict(state[name])
        self.at = At.read(state["at"])

    def groups(self) -> list[list[str]]:
        """What the optimiser trains, by the model's names."""
        names = {id(one): name for name, one in self.model.named_parameters()}
        if any(id(one) not in names for one in self.trained()):
            raise ElasticError("the optimiser has a parameter that is no part of the model: wrap one that has them all")
        return [[names[id(one)] for one in group["params"]] for group in self.optimiser.param_groups]

    def shape(self) -> int:
        """The same for models with the same parameters and buffers, whatever is in them."""
        rows = [(name, tuple(one.shape), str(one.dtype)) for name, one in self.tensors().items()]
        return zlib.crc32(repr(rows).encode())

    def _kind(self) -> str:
        return type(self.optimiser).__name__

    def _check_the_model(self, kept: dict[str, torch.Tensor]) -> None:
        """A copy would do with less than the same shape: one row becomes many."""
        for name, tensor in self.tensors().items():
            if name not in kept:
                raise ElasticError(f"the state is of another model: it has no {name}")
            if kept[name].shape != tensor.shape:
                was, now = tuple(kept[name].shape), tuple(tensor.shape)
                raise ElasticError(f"the state is of another model: {name} has the shape {was} there, and {now} here")

    def _check_the_optimiser(self, state: dict[str, Any]) -> None:
        """It keeps its state by number, so another parameter of the same shape would be given it."""
        if state.get("kind", self._kind()) != self._kind():
            raise ElasticError(f"the state is of another optimiser: {state['kind']}, not {self._kind()}")
        if state.get("groups", self.groups()) != self.groups():
            raise ElasticError("the state is of an optimiser of other parameters, or has them in another order")

    def _freeze(self, frozen: list[str] | None) -> None:
        if frozen is not None:  # as in checkpoints of before
            for name, one in self.model.named_parameters():
                one.requires_grad_(name not in frozen)

    def _add_groups(self, groups: list[list[str]]) -> None:
        """Those that the others have added since they wrapped theirs; how each is trained comes with its state."""
        named = dict(self.model.named_parameters())
        for names in groups[len(self.optimiser.param_groups) :]:
            self.optimiser.add_param_group({"params": [named[name] for name in names]})

    def tensors(self) -> dict[str, torch.Tensor]:
        """Of the model, by its names: parameters and all buffers."""
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}

    def _others(self) -> list[tuple[str, Any]]:
        named = {"optimiser": self.optimiser, "scheduler": self.scheduler, "scaler": self.scaler, "own": self.own}
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


def walk(value: Any, each: Callable[[Any], Any]) -> Any:
    """The same with `each` of what is no list, tuple or dictionary."""
    if isinstance(value, dict):
        return {key: walk(one, each) for key, one in value.items()}
    if isinstance(value, list | tuple):
        parts = [walk(one, each) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return each(value)


def send_state(group: Group, state: dict[str, Any], lacking: list[int]) -> None:
    """To those who lack it, and to nobody else: first the form with holes, then what belongs there."""
    tensors: list[torch.Tensor] = []

    def cut(tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor):
            return tensor
        tensors.append(tensor.detach())
        return _Hole(tuple(tensor.shape), tensor.dtype, tensor.device.type)

    form = pickle.dumps(walk(state, cut))
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

    def note(hole: Any) -> Any:
        if isinstance(hole, _Hole):
            holes.append(hole)
        return hole

    skeleton = walk(pickle.loads(form.cpu().numpy().tobytes()), note)
    filled: dict[int, torch.Tensor] = {}
    for chunk in _chunks([(hole.dtype, hole.nbytes) for hole in holes]):
        sizes = [math.prod(holes[number].shape) for number in chunk]
        empty = torch.empty(sum(sizes), dtype=holes[chunk[0]].dtype, device=group.device)
        for number, part in zip(chunk, _received(group, empty, source).split(sizes), strict=True):
            filled[number] = part.view(holes[number].shape).to(holes[number].device, copy=True)
    numbers = iter(range(len(holes)))
    state: dict[str, Any] = walk(skeleton, lambda one: filled[next(numbers)] if isinstance(one, _Hole) else one)
    return state if group.works() else None


def _received(group: Group, tensor: torch.Tensor, source: int) -> torch.Tensor:
    group.wait(group.receive(tensor, source))
    return tensor
