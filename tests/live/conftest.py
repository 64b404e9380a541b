"""Runs of real processes on the stand-in, and what must hold after each of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.shop import Shop
from tests.standin.fixtures import hardware as hardware
from tests.standin.fixtures import standin_tools as standin_tools
from tests.standin.hardware import Hardware


@pytest.fixture
def shop(hardware: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """With a short path, because of MPS's sockets."""
    shop = Shop(hardware, tmp_path_factory.mktemp("r"))
    yield shop
    shop.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
