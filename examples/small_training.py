"""Small trainings for a CPU device, numpy only: with real gradients, and wherever they are stopped the end is the same.

    python examples/small_training.py mlp --steps 300

mlp        a dense network; as many threads as OMP_NUM_THREADS says, or as there are CPUs
single     a recurrent network; each of its products waits for the last, on one thread
embedding  a table of 128 MiB, of which every step reads all and changes a part: bound by memory
loader     a small network that waits for its data most of the time, as if they came from a slow store

A step takes 0.1 to 0.2 s on two CPUs. Threads work on pieces of the batch that are always the same and are added up in
their order, so the number of threads, which may change from one start to the next, changes no bit of the result.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # its threads spin, which wastes a quota

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuloom.train import checkpoint_dir, on_stop, report, resuming

Floats = NDArray[np.float32]
State = dict[str, Floats]
"""Arrays by name, changed in place."""
Gradients = tuple[float, State]
"""The loss, and what each of the weights does to it."""


@dataclass(frozen=True, slots=True)
class Training:
    weights: State
    momentum: State
    """Both together, and the number of the next step, are all that a checkpoint holds."""
    advance: Callable[[int], float]
    """One step, whose number says which data it sees; its loss."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("kind", choices=KINDS)
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--save-every", type=int, default=50)
    options.add_argument("--seed", type=int, default=1)
    wish = options.parse_args()
    stop: list[bool] = []
    on_stop(lambda: stop.append(True))
    training = KINDS[wish.kind](wish.seed)
    step, loss = load(training), None
    report(step)
    while step < wish.steps and not stop:
        loss = training.advance(step)
        step += 1
        report(step, loss=loss)
        if step % wish.save_every == 0:
            save(training, step)
    save(training, step)
    print(f"{step} steps are done" + ("" if loss is None else f", loss {loss:.4f}"))


def load(training: Training) -> int:
    """The step to go on from: 0 if nothing was saved."""
    path = checkpoint_dir() / "checkpoint.npz"
    if not resuming() or not path.exists():
        return 0
    with np.load(path) as saved:
        for kind, arrays in (("weights", training.weights), ("momentum", training.momentum)):
            for name, array in arrays.items():
                array[...] = saved[f"{kind} {name}"]
        return int(saved["step"])


def save(training: Training, step: int) -> None:
    draft = checkpoint_dir() / "draft.npz"  # whoever is killed while saving keeps the last checkpoint
    weights = {f"weights {name}": array for name, array in training.weights.items()}
    momentum = {f"momentum {name}": array for name, array in training.momentum.items()}
    np.savez(draft, allow_pickle=False, step=np.int64(step), **weights, **momentum)
    draft.replace(checkpoint_dir() / "checkpoint.npz")


def drawn(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def chosen(seed: int, step: int, samples: int, batch: int) -> NDArray[np.int64]:
    """The samples of a step, known from its number alone."""
    return np.random.default_rng((seed, step)).integers(samples, size=batch)


def threads() -> int:
    return int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0] or len(os.sched_getaffinity(0)))


def descent(weights: State, gradients: Callable[[int], Gradients], rate: float) -> Training:
    """Stochastic gradient descent with momentum."""
    momentum = {name: np.zeros_like(array) for name, array in weights.items()}

    def advance(step: int) -> float:
        loss, found = gradients(step)
        descend(weights, momentum, found, rate)
        return loss

    return Training(weights, momentum, advance)


def descend(weights: State, momentum: State, gradients: State, rate: float) -> None:
    for name, gradient in gradients.items():
        momentum[name] *= np.float32(0.9)
        momentum[name] += gradient
        weights[name] -= np.float32(rate) * momentum[name]


# ---- a dense network --------------------------------------------------------------------------------------------


def dense(seed: int, width: int, batch: int, pieces: int, wait_s: float = 0.0) -> Training:
    """Two hidden layers that learn what a fixed random one says of its inputs."""
    samples, features = 8192, 64
    inputs = drawn(seed, samples, features)
    wanted = np.tanh(inputs @ drawn(seed + 1, features, 8) / np.float32(features**0.5))
    shapes = {"first": (features, width), "second": (width, width), "last": (width, 8)}
    weights = {name: drawn(seed + 2, *shape) / np.float32(shape[0] ** 0.5) for name, shape in shapes.items()}
    workers = ThreadPoolExecutor(min(threads(), pieces))

    def gradients(step: int) -> Gradients:
        time.sleep(wait_s)  # until the data are there
        parts = np.array_split(chosen(seed, step, samples, batch), pieces)
        found = list(workers.map(lambda rows: dense_gradients(weights, inputs[rows], wanted[rows], batch), parts))
        return sum(loss for loss, _ in found), {name: sum_of([part[name] for _, part in found]) for name in weights}

    return descent(weights, gradients, rate=0.01)


def dense_gradients(weights: State, inputs: Floats, wanted: Floats, batch: int) -> Gradients:
    """Of a piece of a batch: its part of the mean."""
    first = np.tanh(inputs @ weights["first"])
    second = np.tanh(first @ weights["second"])
    error = (second @ weights["last"] - wanted) / np.float32(batch)
    to_second = error @ weights["last"].T * (1 - second * second)
    to_first = to_second @ weights["second"].T * (1 - first * first)
    gradients = {"first": inputs.T @ to_first, "second": first.T @ to_second, "last": second.T @ error}
    return float(batch * (error * error).sum() / 2), gradients


def sum_of(parts: list[Floats]) -> Floats:
    """Added in their order, whoever was ready first."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


# ---- a recurrent network ----------------------------------------------------------------------------------------


def recurrent(seed: int) -> Training:
    """It learns to say what it heard now and one moment ago."""
    batch, moments, features, width = 256, 96, 16, 224
    shapes = {"in": (features, width), "again": (width, width), "out": (width, features)}
    weights = {name: drawn(seed, *shape) / np.float32(2 * shape[0] ** 0.5) for name, shape in shapes.items()}
    before = drawn(seed + 1, features, features) / np.float32(features**0.5)

    def gradients(step: int) -> Gradients:
        heard = np.random.default_rng((seed, step)).standard_normal((moments, batch, features), dtype=np.float32)
        wanted = heard.copy()
        wanted[1:] += heard[:-1] @ before
        return recurrent_gradients(weights, heard, wanted)

    return descent(weights, gradients, rate=0.02)


def recurrent_gradients(weights: State, heard: Floats, wanted: Floats) -> Gradients:
    """Forwards through time, and back."""
    moments, batch, _ = heard.shape
    states = np.zeros((moments + 1, batch, len(weights["again"])), dtype=heard.dtype)
    for t in range(moments):
        states[t + 1] = np.tanh(heard[t] @ weights["in"] + states[t] @ weights["again"])
    error = (states[1:] @ weights["out"] - wanted) / np.float32(moments * batch)
    gradients = {name: np.zeros_like(array) for name, array in weights.items()}
    later = np.zeros_like(states[0])
    for t in reversed(range(moments)):
        inner = (error[t] @ weights["out"].T + later) * (1 - states[t + 1] * states[t + 1])
        gradients["out"] += states[t + 1].T @ error[t]
        gradients["in"] += heard[t].T @ inner
        gradients["again"] += states[t].T @ inner
        later = inner @ weights["again"].T
    return float(moments * batch * (error * error).sum() / 2), gradients


# ---- a large table ----------------------------------------------------------------------------------------------


def table(seed: int) -> Training:
    """Rows are to say, through a common head, the hidden sign of their number. Weight decay reaches every row."""
    rows, width, batch, decay = 1 << 21, 16, 3 << 17, np.float32(1e-4)
    kept = np.tile(drawn(seed, rows >> 5, width) * np.float32(0.3), (1 << 5, 1))  # to draw them all would take long
    weights = {"table": kept, "head": np.ones((width, 1), dtype=np.float32)}
    momentum = {"head": np.zeros_like(weights["head"])}  # momentum for every row would be a second table

    def advance(step: int) -> float:
        here = far_apart(np.random.default_rng((seed, step)), batch, rows)
        found = kept[here]
        sign = ((here * 2654435761 >> 16) & 1) * 2 - 1
        error = found @ weights["head"] - sign[:, None].astype(np.float32)
        loss = float((error * error).mean() / 2 + decay * np.vdot(kept, kept) / 2 / rows)
        to_head = found.T @ error / np.float32(batch)
        kept[...] *= 1 - decay
        kept[here] -= np.float32(0.02) * error * weights["head"].T
        descend(weights, momentum, {"head": to_head}, rate=0.005)
        return loss

    return Training(weights, momentum, advance)


def far_apart(dice: np.random.Generator, batch: int, rows: int) -> NDArray[np.int64]:
    """Rows that are all different, so that no change to one is lost, in an order in which no cache helps."""
    stride, first = dice.integers(rows, size=2)
    return np.asarray((first + np.arange(batch) * (stride | 1)) % rows)


KINDS: dict[str, Callable[[int], Training]] = {
    "mlp": lambda seed: dense(seed, width=512, batch=7168, pieces=8),
    "single": recurrent,
    "embedding": table,
    "loader": lambda seed: dense(seed, width=256, batch=2048, pieces=1, wait_s=0.1),
}

if __name__ == "__main__":
    main()
