"""How a plan is to be served: the options of `gpuloom serve up`, and which of them do not go together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.serve.fleet.correct import RULES, Rules
from gpuloom.serve.fleet.wish import TIMING, Timing
from gpuloom.serve.gateway.grpc_client import INSTALL, library

MODEL_START_S = 600.0
"""A real model may take minutes to load; a stand-in that takes one has failed."""


@dataclass(frozen=True, slots=True)
class Options:
    dilate: float = 1.0
    """So many seconds pass for one of the plan's; only for stand-ins."""
    standby: bool = True
    models: Path | None = None
    """The user's own model repository, by workload or service; None: stand-ins."""
    host: str = "127.0.0.1"
    port: int = 0
    grpc_port: int | None = None
    """None: no gRPC."""
    devices: tuple[str, ...] = ()
    """CPU devices, as the command line names them; none: this host's GPUs."""
    rules: Rules = RULES
    timing: Timing = TIMING

    @property
    def standin(self) -> bool:
        """Whether the models only take their time."""
        return self.models is None


def options_of(
    dilate: float,
    standby: bool,
    models: Path | None,
    host: str,
    port: int,
    grpc_port: int,
    calm_s: float,
    devices: Sequence[str] = (),
) -> Options:
    """gRPC is spoken where it is installed; without, it must not have been asked for."""
    if grpc_port and library() is None:
        raise InputError(f"--grpc-port needs grpcio, which is not installed: {INSTALL}")
    if grpc_port and grpc_port == port:
        raise InputError(f"--port and --grpc-port are both {port}: each needs one of its own")
    if models is not None and dilate != 1.0:
        raise InputError("--dilate is for stand-in models: real ones take the time they take")
    if devices and models is None:
        raise InputError(
            "--device needs --models: a stand-in sleeps as long as a batch takes on a GPU, and would use no CPU time"
        )
    grpc = None if library() is None else grpc_port
    timing = TIMING if models is None else replace(TIMING, start_s=MODEL_START_S)
    return Options(dilate, standby, models, host, port, grpc, tuple(devices), Rules(calm_s=calm_s), timing)
