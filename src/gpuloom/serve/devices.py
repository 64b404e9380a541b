"""What a plan's grants are on this host: GPUs, parts of the CPU's time, or nothing at all."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gpuloom.gpus.grant import Grant
from gpuloom.gpus.host.nvml import NoDriver, opened
from gpuloom.serve.cpus import cpus_of, end_left_on_cpus
from gpuloom.serve.gpus import HostDevices, stop_daemons
from gpuloom.serve.seats import Devices, NoDevices
from gpuloom.serve.state import State


@contextmanager
def devices_of(
    names: Sequence[str], grants: Sequence[Grant], state: State, say: Callable[[str], None] = lambda _: None
) -> Iterator[Devices]:
    """For servers with these grants: the devices that are named, else this host's GPUs, or none without a driver.

    All that was started or taken for them is given back at the end, when the servers and all threads have ended.
    """
    if names:
        with cpus_of(names, grants, state, say) as cpus:
            yield cpus
        return
    try:
        with opened():
            pass
    except NoDriver:
        yield NoDevices()
        return
    host = HostDevices(state.mps_dir)
    host.find(grants)
    try:
        yield host
    finally:
        host.release()


def end_left(state: State) -> None:
    """End what a deployment has left that was killed: MPS daemons, groups on CPU devices. DeviceError if that fails."""
    stop_daemons(state.mps_dir)
    end_left_on_cpus(state)
