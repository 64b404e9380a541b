"""Compiling the stand-in: once for each version of its sources, into a folder that the system may clean.

Sanitizers are a second build, in which a C program drives the same sources: a library with sanitizers cannot be loaded
into a Python without them.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
LIBRARY = [
    *("nvml.c", "nvml_mig.c", "nvml_health.c", "nvml_board.c", "nvml_modes.c", "nvml_names.c"),
    *("boards.c", "clients.c", "replayed.c", "world.c"),
]
SCRIPTS = {
    "mps_control.py": ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
    "mps_daemon.py": (),
    "dcgmi.py": ("dcgmi",),
}
"""And the tools that each is."""
WALLCLOCK = "libwallclock.so"
"""For LD_PRELOAD: see `wallclock.c`."""

CUDA = "cuda"
"""The folder below that has a libcuda.so.1: for LD_LIBRARY_PATH where processes are to open devices themselves."""


class NoCompilerError(Exception):
    """There is no C compiler here."""


def compiler() -> str:
    found = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if found is None:
        raise NoCompilerError("needs a C compiler (cc or gcc)")
    return found


def compile_c(sources: list[str], out: Path, *flags: str) -> None:
    command = [compiler(), *FLAGS, *flags, "-o", str(out), *(str(HERE / source) for source in sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the stand-in does not compile:\n{done.stderr}")


def build() -> Path:
    """A folder for LD_LIBRARY_PATH and PATH: libnvidia-ml.so.1, standinctl, the MPS tools, dcgmi and the wall clock."""
    sources = sorted(path for path in HERE.iterdir() if path.suffix in (".c", ".h") or path.name in SCRIPTS)
    parts = [sys.executable.encode(), *(path.read_bytes() for path in (*sources, Path(__file__)))]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"gpuloom-standin-{os.getuid()}-{digest}"
    if folder.is_dir():
        return folder
    draft = Path(tempfile.mkdtemp(prefix="gpuloom-standin-draft-"))
    soname = "libnvidia-ml.so.1"
    compile_c(LIBRARY, draft / soname, "-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{soname}")
    compile_c(["standinctl.c", "clients.c", "replayed.c", "world.c"], draft / "standinctl")
    (draft / CUDA).mkdir()
    compile_c(["resident.c"], draft / CUDA / "libcuda.so.1", "-shared", "-fPIC", "-fvisibility=hidden", "-ldl")
    compile_c(["wallclock.c"], draft / WALLCLOCK, "-shared", "-fPIC", "-ldl")
    # Started by this very Python, not through `env`: it is quicker, and the process then has the tool's name.
    for script, names in SCRIPTS.items():
        program = (HERE / script).read_text().replace("#!/usr/bin/env python3", f"#!{sys.executable} -IS", 1)
        for name in names:
            (draft / name).write_text(program)
            (draft / name).chmod(0o755)
    shutil.copyfile(HERE / "mps_daemon.py", draft / "mps_daemon.py")
    try:
        draft.rename(folder)
    except OSError:  # another test process was faster
        shutil.rmtree(draft)
    return folder


def build_sanitized(program: str, folder: Path) -> Path:
    """A C program of this folder together with the library's sources, with address and undefined-behaviour checks."""
    out = folder / Path(program).stem
    compile_c([program, *LIBRARY], out, *SANITIZED)
    return out
