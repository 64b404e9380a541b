"""Programs and headers of others, in an environment of their own (`make clients`), on the stand-ins."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernels.cuda_world import Tools, make_tools
from tests.standin.fixtures import hardware as hardware
from tests.standin.fixtures import standin_tools as standin_tools
from tests.standin.hardware import Hardware

HERE = Path(__file__).parent
ENVIRONMENT = Path(os.environ.get("GPULOOM_TEST_CLIENTS", HERE.parents[1] / ".venv-clients"))
GUARD_S = 60  # only so that a test that would hang fails

Client = Callable[..., str]


@pytest.fixture(scope="session")
def clients() -> Path:
    """The folder of their commands."""
    if not (ENVIRONMENT / ".installed").exists():
        pytest.skip("needs the clients of others: make clients")
    return ENVIRONMENT / "bin"


@pytest.fixture(scope="session")
def headers(clients: Path) -> Path:
    """The folder with NVIDIA's own: nvml.h, cuda.h, cudaTypedefs.h."""
    [found] = clients.parent.glob("lib/python*/site-packages/nvidia/cu13/include")
    return found


@pytest.fixture
def client(clients: Path, hardware: Hardware) -> Client:
    """Runs a command of theirs, or (a name that ends in .py) a program of this folder, on the stand-in's hardware."""

    def run(name: str, *words: str) -> str:
        command = [str(clients / "python"), str(HERE / name)] if name.endswith(".py") else [str(clients / name)]
        done = subprocess.run(
            [*command, *words],
            env=hardware.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=GUARD_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """The stand-in for CUDA's driver, and the hook."""
    return make_tools(tmp_path_factory.mktemp("cuda"))
