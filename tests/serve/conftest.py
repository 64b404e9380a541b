"""Servers that only look like Triton, and the real one."""

import sys
from pathlib import Path

import pytest

from gpuloom.serve.triton.environment import SetupError, Triton, ensure
from tests.standin.fixtures import hardware as hardware
from tests.standin.fixtures import standin_tools as standin_tools


@pytest.fixture(scope="session")
def fake_triton(tmp_path_factory: pytest.TempPathFactory) -> Triton:
    program = tmp_path_factory.mktemp("fake") / "tritonserver"
    source = Path(__file__).with_name("fake_triton.py").read_text()
    program.write_text(f"#!{sys.executable} -IS\n{source}")
    program.chmod(0o755)
    return Triton(program)


@pytest.fixture(scope="session")
def real_triton() -> Triton:
    """Set up by the product's own code, once for all sessions of this user."""
    try:
        return ensure()
    except SetupError as error:
        pytest.skip(f"Triton cannot be installed here: {error}")
