"""The stand-in for the hardware, for the tests of this folder."""

from tests.standin.fixtures import hardware as hardware
from tests.standin.fixtures import standin_tools as standin_tools
