"""Fixtures for tests on the stand-in; a folder's `conftest.py` imports them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.standin.build import NoCompilerError, build
from tests.standin.hardware import Hardware


@pytest.fixture(scope="session")
def standin_tools() -> Path:
    try:
        return build()
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def hardware(standin_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hardware]:
    """Hardware for the tests of one file, each of which installs its own GPUs."""
    hardware = Hardware(standin_tools, tmp_path_factory.mktemp("hw"))
    yield hardware
    hardware.close()
