"""The measured profiles of the four models, where the data is here."""

from pathlib import Path

import pytest

from gpuloom.work.measured.service_profiles import Profiles, read_service_profiles


@pytest.fixture(scope="session")
def profiles(data_dir: Path) -> Profiles:
    return read_service_profiles(data_dir / "igniter" / "profile_v100.jsonl")
