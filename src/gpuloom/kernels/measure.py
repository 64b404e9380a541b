"""Measuring: run a program alone, several times, and write down every kernel it launches."""

import os
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.kernels.profile import Kernel, Profile, Run
from gpuloom.kernels.record import devices_of, read_records, runs_of
from gpuloom.kernels.session import STANDARD_ERROR, recording, run_program

STOPPED = (130, 143)
"""Exit codes of a program that Ctrl-C or a request to end has stopped."""


class StoppedError(Exception):
    """Somebody stopped the program, which is no failure of it."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def measure(command: Sequence[str], runs: int, after_run: Callable[[int], None] = lambda _: None) -> Profile:
    """Its profile. InputError if it fails or launches nothing that we see, StoppedError if somebody ends it.

    What it prints goes to standard error: standard output is ours.
    """
    kernels: dict[int, Kernel] = {}
    found: list[Run] = []
    devices: set[str] = set()
    for number in range(runs):
        with tempfile.TemporaryDirectory(prefix="gpuloom-measure-") as folder:
            prefix = Path(folder) / "kernels"
            code = run_program(command, recording(prefix, os.environ), stdout=STANDARD_ERROR)
            if code in STOPPED:
                raise StoppedError(code)
            if code != 0:
                raise InputError(
                    f"{shlex.join(command)}: ended with exit code {code}: expected a program that succeeds"
                )
            for path in sorted(Path(folder).iterdir()):
                of_process, its_runs = runs_of(read_records(path))
                kernels |= of_process
                found += its_runs
                devices |= devices_of(path)
        after_run(number + 1)
    if not found:
        raise InputError(
            f"{shlex.join(command)}: launched no kernels that we saw: expected a program that uses CUDA, or OpenCL with"
            " a loader that knows layers (ocl-icd 2.3, Khronos 2021.04 or newer)"
        )
    return Profile(shlex.join(command), kernels, tuple(found), ", ".join(sorted(devices)) or "-")
