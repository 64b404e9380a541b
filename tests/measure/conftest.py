"""Campaigns on the stand-in for GPUs, and on CPU devices where there are control groups."""

from collections.abc import Iterator

import pytest

from gpuloom.gpus.host.cpu_driver import cpu_driver
from gpuloom.gpus.host.nvml import NoDriver
from tests.measure.lab import Lab
from tests.serve.conftest import real_triton as real_triton
from tests.standin.fixtures import hardware as hardware
from tests.standin.fixtures import standin_tools as standin_tools
from tests.standin.hardware import Hardware

UNCUT = "A100-40GB+resets"
"""MIG off when found; its mode changes without a reset by hand."""


@pytest.fixture
def lab(hardware: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """With a short path, because of MPS's sockets."""
    hardware.install(UNCUT)
    lab = Lab(hardware, tmp_path_factory.mktemp("m"))
    yield lab
    lab.close()


@pytest.fixture
def cpu_lab(lab: Lab) -> Lab:
    lab.device = "cpu=40%"
    try:
        with cpu_driver(lab.cpu_driver().devices, lab.folder):
            pass
    except NoDriver as reason:
        pytest.skip(f"needs cgroups: {reason}")
    lab.hardware.environment.pop("OPENBLAS_NUM_THREADS", None)
    return lab
