"""Where this host's files are: in a container that was given them, not where they usually are."""

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "GPULOOM_HOST_ROOT"


def host_root(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder below which the host's /proc, /sys, /etc, /var and /run are to be seen."""
    return Path(environment.get(VARIABLE) or "/")
