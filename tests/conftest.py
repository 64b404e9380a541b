"""Shared by all tests: where the measured data is, if it is here."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public measurements: $GPULOOM_DATA, or ../shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GPULOOM_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"needs the measured data: {folder} is absent (set GPULOOM_DATA)")
    return folder
