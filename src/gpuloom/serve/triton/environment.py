"""The Triton server, in a Python environment of its own: created once, found again in milliseconds.

`nvidia-pytriton` carries the genuine server with its Python backend. It wants numpy below 2, so it must not share our
environment, and of its dependencies the server itself needs numpy alone. A stamp is written last: an environment that
has it is whole, and one that was begun by somebody who was killed is made anew.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.gpus.host.files import alone

PLACE = "GPULOOM_TRITON_ENV"
"""The variable that names another place for it."""
REQUIREMENTS = ("nvidia-pytriton==0.7.0", "numpy<2")
ONNX = "onnxruntime==1.22.1"
"""Only numpy is needed of what it asks for, to run a model."""
_STAMP = "gpuloom-ready"
_STUB = "triton_python_backend_stub"
Say = Callable[[str], None]


class SetupError(Exception):
    """There is no Triton server to be had; the text says why."""


@dataclass(frozen=True, slots=True)
class Triton:
    """A server that can be started."""

    binary: Path
    backends: Path | None = None
    """None: where the server itself looks."""
    programs: Path | None = None
    """Where the `python3` is whose packages its models import: the stub finds them from the PATH. None: as it is."""

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """What its process needs to find that."""
        if self.programs is None:
            return {}
        libraries = [str(sysconfig.get_config_var("LIBDIR") or ""), inherited.get("LD_LIBRARY_PATH", "")]
        return {
            "PATH": f"{self.programs}{os.pathsep}{inherited.get('PATH', os.defpath)}",
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),  # where the stub's libpython may be
        }


def place(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the environment is, or will be; one for each Python, whose stub it has."""
    if named := environment.get(PLACE):
        return Path(named).absolute()
    cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache).absolute() / "gpuloom" / f"triton-{REQUIREMENTS[0].partition('==')[2]}-py{_python()}"


def ensure(say: Say = lambda _: None, folder: Path | None = None) -> Triton:
    """The server, installed if it is not there yet (some ten seconds and 250 MB, from the package index)."""
    folder = folder or place()
    if not (folder / _STAMP).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with alone(folder.with_name(folder.name + ".lock")):  # the others wait, and then find it done
            if not (folder / _STAMP).is_file():  # nobody else made it while we waited
                _create(folder, say)
    server = _site_packages(folder) / "pytriton" / "tritonserver"
    return Triton(server / "bin" / "tritonserver", server / "backends", folder / "bin")


def ensure_onnx(triton: Triton, say: Say = lambda _: None) -> None:
    """That our environment's models can run ONNX files. SetupError if this Triton is not ours."""
    if triton.programs is None:
        raise SetupError(
            f"{triton.binary} has no onnxruntime backend: name a Triton that has one, or a Python model instead"
        )
    folder = triton.programs.parent
    with alone(folder.with_name(folder.name + ".lock")):
        if not (_site_packages(folder) / "onnxruntime").is_dir():
            say(f"installing {ONNX} beside Triton")
            pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
            _run([*pip, "install", "--quiet", "--no-deps", ONNX], f"pip cannot install {ONNX}")


def given_or_installed(program: Path | None, say: Say) -> Triton:
    """The user's own server, if one is named."""
    if program is None:
        return ensure(say)
    if not os.access(program, os.X_OK) or program.is_dir():
        raise InputError(f"--triton {program}: not a program; expected the path of a tritonserver")
    if not _is_triton(program):
        raise InputError(f"--triton {program}: its --help is not that of Triton; expected the path of a tritonserver")
    backends = program.resolve().parent.parent / "backends"
    return Triton(program.resolve(), backends if backends.is_dir() else None)


def _is_triton(program: Path) -> bool:
    """Whether a program calls itself a Triton server: any other would be started, and waited for."""
    try:
        done = subprocess.run(
            [program, "--help"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--model-repository" in done.stdout + done.stderr


def _create(folder: Path, say: Say) -> None:
    if folder.exists() and not (folder / "pyvenv.cfg").is_file() and any(folder.iterdir()):
        raise SetupError(f"{folder} holds something else: name an empty or new folder in {PLACE}")
    # A virtual environment knows its own path, so it is made in place and only its stamp says that it is whole.
    shutil.rmtree(folder, ignore_errors=True)
    say(f"making an environment for Triton in {folder}")
    _run([sys.executable, "-m", "venv", str(folder)], "python cannot make a virtual environment")
    say(f"installing {REQUIREMENTS[0]}")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "install", "--quiet", "--no-deps", *REQUIREMENTS], f"pip cannot install {REQUIREMENTS[0]}")
    _lay_out(_site_packages(folder) / "pytriton" / "tritonserver")
    (folder / _STAMP).write_text("\n".join(REQUIREMENTS) + "\n", encoding="utf-8")


def _lay_out(server: Path) -> None:
    """Put this Python's stub where the backend looks: beside its library, from where it finds its own libraries."""
    stub = server / "python_backend_stubs" / _python() / _STUB
    if not stub.is_file():
        known = ", ".join(sorted(folder.name for folder in stub.parents[1].glob("*"))) or "none"
        raise SetupError(f"Triton's Python backend has no stub for Python {_python()}: run gpuloom on one of {known}")
    for program in (shutil.copy(stub, server / "backends" / "python" / _STUB), server / "bin" / "tritonserver"):
        Path(program).chmod(0o755)


def _site_packages(folder: Path) -> Path:
    return folder / "lib" / f"python{_python()}" / "site-packages"


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _run(command: list[str], what: str) -> None:
    # An interpreter that is told ours would install there.
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        command, env=inherited, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        said = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
        errors = [line for line in said if "error" in line.lower()] or said or [f"exit code {done.returncode}"]
        raise SetupError(f"{what}: {errors[-1].strip()}")
