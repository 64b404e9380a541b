"""What the rooms' own tests use, for their verbs."""

from tests.kernels.conftest import opencl as opencl
from tests.live.conftest import shop as shop
from tests.serve.conftest import fake_triton as fake_triton
from tests.serve.conftest import real_triton as real_triton
