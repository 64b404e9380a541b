"""What the stand-ins and the hook take NVIDIA's interfaces to be, held against NVIDIA's own headers from PyPI."""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest

from tests.kernels.csrc_core import CSRC
from tests.kernels.cuda_world import PROGRAMS, SOURCES, STANDIN, STRICT, compile_c
from tests.standin.build import HERE as NVML_STANDIN
from tests.standin.build import compiler

CUDA_SOURCES = [*SOURCES, *sorted(STANDIN.glob("*.c")), PROGRAMS / "scenarios.c"]


def declared(headers: Path) -> dict[str, str]:
    """Every function of nvml.h, with its parameters."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", (headers / "nvml.h").read_text(), flags=re.DOTALL)
    return dict(re.findall(r"nvmlReturn_t\s+DECLDIR\s+(nvml\w+)\s*\((.*?)\)\s*;", text, flags=re.DOTALL))


def shape(parameters: str) -> list[bool]:
    """Of each parameter, whether it is a pointer. Handles are not: what is behind them nobody sees."""
    found = [re.sub(r"struct event_set \*(?!\*)", "handle ", one) for one in parameters.split(",")]
    return [] if parameters.strip() == "void" else ["*" in one or "[" in one for one in found]


def test_nvml_has_the_numbers_and_structures_of_the_header(headers: Path) -> None:
    command = [compiler(), "-std=c11", "-fsyntax-only", "-Wall", "-Werror", "-isystem", str(headers)]
    done = subprocess.run([*command, str(NVML_STANDIN / "headers.c")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nvml_exports_every_name_of_the_header(headers: Path, standin_tools: Path) -> None:
    library = ctypes.CDLL(str(standin_tools / "libnvidia-ml.so.1"))
    names = declared(headers)
    assert len(names) > 300
    assert [name for name in names if not hasattr(library, name)] == []


def test_nvml_functions_take_what_those_of_the_header_take(headers: Path) -> None:
    theirs = declared(headers)
    ours = {
        name: parameters
        for file in NVML_STANDIN.glob("nvml*.c")
        for name, parameters in re.findall(r"^API code (nvml\w+)\((.*?)\)", file.read_text(), re.MULTILINE | re.DOTALL)
    }
    assert {name: shape(parameters) for name, parameters in ours.items()} == {
        name: shape(theirs[name]) for name in ours
    }


@pytest.mark.parametrize("source", CUDA_SOURCES, ids=lambda source: source.name)
def test_cuda_functions_are_declared_as_in_the_header(headers: Path, source: Path) -> None:
    """The compiler compares: with the header there, every function is declared twice."""
    folders = ["-isystem", str(headers), f"-I{CSRC}", f"-I{STANDIN}"]
    command = [compiler(), *STRICT, "-fsyntax-only", "-DWITH_CUDA_HEADER", *folders, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_cuda_numbers_and_structures_are_those_of_the_header(headers: Path, tmp_path: Path) -> None:
    printed = []
    for name, flags in (("ours", ()), ("theirs", ("-DWITH_CUDA_HEADER", "-isystem", str(headers)))):
        program = compile_c(tmp_path / name, [STANDIN / "constants.c"], "-std=c11", *flags)
        printed.append(subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines())
    assert len(printed[0]) > 30
    assert printed[0] == printed[1]


@pytest.mark.parametrize("file", [CSRC / "cuda_hook.c", STANDIN / "libcuda.c"], ids=["hook", "stand-in"])
def test_cuda_functions_appeared_when_nvidia_says(headers: Path, file: Path) -> None:
    """By the names of the types that NVIDIA has for them: PFN_cuLaunchKernel_v7000_ptsz."""
    known = set(re.findall(r"\*PFN_(\w+)\)", (headers / "cudaTypedefs.h").read_text()))
    rows = re.findall(r'^ *(?:HOOK|OF)\((\w+), "(\w+)", (\d+), (true|false)\)', file.read_text(), re.MULTILINE)
    assert len(rows) > 20
    said = {
        f"{base}_v{since}" + (function[-5:] if per_thread == "true" else "")
        for function, base, since, per_thread in rows
        if since != "0"  # as old as the driver has it
    }
    assert said - known == set()
