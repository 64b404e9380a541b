"""Shared by all tests: where the measured data is, if it is here."""

import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does: matrices are small. Read with numpy.

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is, and nothing about the code. In CI the examples are always the
# same: what it says of a change does not depend on luck. Elsewhere they are new ones each time.
settings.register_profile("new", deadline=None)
settings.register_profile("same", deadline=None, derandomize=True)
settings.load_profile("same" if os.environ.get("CI") else "new")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of public measurements: $GPULOOM_DATA, or ../shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GPULOOM_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"needs the measured data: {folder} is absent (set GPULOOM_DATA)")
    return folder
