"""MISO (SoCC'22): as published, with the authors' Oracle, and ours."""

from gpuloom.policies.miso.oracle import Oracle as Oracle
from gpuloom.policies.miso.paper import MisoPaper as MisoPaper
from gpuloom.policies.miso.policy import Miso as Miso
