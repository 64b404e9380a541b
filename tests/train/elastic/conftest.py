"""One process with PyTorch for all tests of this folder, and a maker of trainings."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.train.elastic.shop import Spawner, Training


@pytest.fixture(scope="session")
def spawner() -> Iterator[Spawner]:
    if find_spec("torch") is None:
        pytest.skip("needs PyTorch")
    made = Spawner()
    yield made
    made.close()


@pytest.fixture
def training(spawner: Spawner, tmp_path: Path) -> Callable[..., Training]:
    """A training as wished; by default it goes on until there is enough."""

    def make(folder: str = "job", **wish: Any) -> Training:
        return Training(spawner, tmp_path / folder, {"epochs": 10**6, "max_local_batch": 8, **wish})

    return make
