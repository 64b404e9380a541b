"""Measuring: run a program alone, several times, and write down every kernel it launches."""

import os
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.kernels.profile import Kernel, Profile, Run
from gpuloom.kernels.record import read_records, runs_of
from gpuloom.kernels.session import recording, run_program


def measure(command: Sequence[str], runs: int, after_run: Callable[[int], None] = lambda _: None) -> Profile:
    """Its profile. InputError if it fails or launches nothing that we see."""
    kernels: dict[int, Kernel] = {}
    found: list[Run] = []
    for number in range(runs):
        with tempfile.TemporaryDirectory(prefix="gpuloom-measure-") as folder:
            prefix = Path(folder) / "kernels"
            code = run_program(command, recording(prefix, os.environ))
            if code != 0:
                raise InputError(
                    f"{shlex.join(command)}: ended with exit code {code}: expected a program that succeeds"
                )
            for path in sorted(Path(folder).iterdir()):
                of_process, its_runs = runs_of(read_records(path))
                kernels |= of_process
                found += its_runs
        after_run(number + 1)
    if not found:
        raise InputError(
            f"{shlex.join(command)}: launched no kernels that we saw: expected a program that uses CUDA, or OpenCL with"
            " a loader that knows layers (ocl-icd 2.3, Khronos 2021.04 or newer)"
        )
    return Profile(shlex.join(command), kernels, tuple(found))
