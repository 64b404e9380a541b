"""The models that are measured, as Triton wants them: the user's folder, or one that is made around a file of theirs.

What is made is a folder that anybody's Triton can serve, `models/NAME` of the state folder, so that a plan of these
models goes with `gpuloom serve up --models` of that folder.
"""

import hashlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.measure.plan import Served, Workload
from gpuloom.measure.plan_file import check_name
from gpuloom.serve.load.targets import bodies_of
from gpuloom.serve.triton.environment import Triton
from gpuloom.serve.triton.repository import CONFIG, fields, write_own
from gpuloom.work.source import read_text

PYTHON, ONNX = ".py", ".onnx"
MOST_READ_BYTES = 256 << 20
ONNX_MODEL = Path(__file__).with_name("onnx_model.py")
ACCEPTED = "a folder with a config.pbtxt as Triton wants it, a Python model (.py) or an ONNX file (.onnx)"
MOST_BATCH = 100_000


def workloads_of(
    models: Sequence[str], batches: Sequence[int], bodies: Sequence[str], state: Path, server: str
) -> tuple[Workload, ...]:
    """From the words of the command line: `DIR/NAME` or `NAME=PATH`; of bodies, `FILE` or `NAME=FILE`.

    `server`: the Triton that they are served by, as it is told.
    """
    sources = [_named(text) for text in models]
    names = [name for name, _ in sources]
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise InputError(f"--model: two are called {twice}; name one of them otherwise: OTHER=PATH")
    inside = next((path for _, path in sources if path.resolve().is_relative_to(state.resolve())), None)
    if inside is not None:
        raise InputError(
            f"--model {inside}: lies in the state folder {state}, where models are put: name where it is from"
        )
    of = _bodies(bodies, names)
    return tuple(_workload(name, path, tuple(sorted({*batches})), of.get(name), server) for name, path in sources)


def _named(text: str) -> tuple[str, Path]:
    before, equals, after = text.partition("=")
    name, path = (before, Path(after)) if equals and not Path(text).exists() else ("", Path(text))
    name = name or (path.stem if path.suffix in (PYTHON, ONNX) else path.absolute().name)
    try:
        check_name(name)
    except ValueError as error:
        raise InputError(f"--model {text}: its name {error}: give it another, NAME=PATH") from None
    if re.search(r"[^A-Za-z0-9._-]", name) or name.strip(".") == "":
        raise InputError(f"--model {text}: {name!r} cannot be a folder of Triton's: give it another name, NAME=PATH")
    return name, path


def _bodies(texts: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    found = bodies_of(texts, names)
    for path in {*found.values()}:
        read_text(path, "the JSON of a request of one item")
    return {name: str(path.resolve()) for name, path in found.items()}


def _workload(name: str, path: Path, batches: tuple[int, ...], body: str | None, server: str) -> Workload:
    if not path.exists():
        raise InputError(f"--model {path}: is not there; accepted is {ACCEPTED}")
    if path.is_dir() != (path.suffix not in (PYTHON, ONNX)) or (path.is_dir() and not (path / CONFIG).is_file()):
        raise InputError(f"--model {path}: is not a model; accepted is {ACCEPTED}")
    known = batches if not path.is_dir() else _within(path / CONFIG, batches)
    return Workload(name, (), served=Served(str(path.resolve()), known, body, _digest(path, body), server))


def _digest(path: Path, body: str | None) -> str:
    """Of all that is served, and of what it is asked: who goes on goes on with the same."""
    digest = hashlib.sha256()
    files = sorted(file for file in path.rglob("*") if "__pycache__" not in file.parts) if path.is_dir() else [path]
    for file in [*files, *([] if body is None else [Path(body)])]:
        if not file.is_file():
            continue
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        if size <= MOST_READ_BYTES:
            digest.update(file.read_bytes())
        else:  # weights: who changes them changes the time too
            digest.update(str(file.stat().st_mtime_ns).encode())
    return digest.hexdigest()


def _within(config: Path, batches: tuple[int, ...]) -> tuple[int, ...]:
    """None larger than the model takes."""
    try:
        told = dict(fields(read_text(config, "a Triton model's configuration"))).get("max_batch_size")
        most = MOST_BATCH if told is None else int(told.partition(":")[2].partition("#")[0].strip(" ,;\n"), 0)
    except ValueError as error:
        raise InputError(f"{config}: {error}: expected a Triton model's configuration") from None
    if most < 1:
        raise InputError(f"{config}: max_batch_size is {most}, so the model takes no batches: expected 1 or more")
    return tuple(sorted({min(batch, most) for batch in batches}))


def folder_for(workload: Workload, models: Path, triton: Triton) -> Path:
    """The model as a folder that Triton can serve; made if it is a file. SetupError: see `onnx_backend`."""
    assert workload.served is not None
    source, place = Path(workload.served.source), models / workload.name
    if place.is_symlink():
        place.unlink()
    shutil.rmtree(place, ignore_errors=True)
    if source.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(source)
        return source
    (place / "1").mkdir(parents=True)
    native = triton.backends is not None and (triton.backends / "onnxruntime").is_dir()
    if source.suffix == ONNX:
        shutil.copy(source, place / "1" / "model.onnx")
        for data in (Path(f"{source}.data"), Path(f"{source}_data")):  # weights that the file names
            if data.is_file():
                (place / "1" / data.name).symlink_to(data)
        if not native:
            shutil.copy(ONNX_MODEL, place / "1" / "model.py")
    else:
        shutil.copy(source, place / "1" / "model.py")
    backend = "onnxruntime" if source.suffix == ONNX and native else "python"
    (place / CONFIG).write_text(f'backend: "{backend}"\nmax_batch_size: {workload.served.batches[-1]}\n')
    return place


def needs_onnx(models: Sequence[Workload], triton: Triton) -> bool:
    """Whether our Python model has to run an ONNX file, because this Triton has no backend for them."""
    native = triton.backends is not None and (triton.backends / "onnxruntime").is_dir()
    return not native and any(model.served is not None and model.served.source.endswith(ONNX) for model in models)


def repository_for(workload: Workload, models: Path, repositories: Path, triton: Triton) -> Path:
    """What one server reads: the model alone, with room for its largest batch and no waiting for others."""
    assert workload.served is not None
    place = repositories / workload.name
    write_own(place, workload.name, folder_for(workload, models, triton), workload.served.batches[-1], 0.0)
    return place
