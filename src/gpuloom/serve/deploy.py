"""A plan carried out on this machine: from its file to the moment when nothing is left running, step by step."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuloom.serve.cpus import check_made_for
from gpuloom.serve.deployment import read_plan, workloads_of
from gpuloom.serve.devices import devices_of, end_left
from gpuloom.serve.fleet.fleet import Fleet
from gpuloom.serve.fleet.journal import Event
from gpuloom.serve.options import Options
from gpuloom.serve.prepare import prepare
from gpuloom.serve.serving import serve
from gpuloom.serve.state import Record, State
from gpuloom.serve.times import shipped_times
from gpuloom.serve.triton.environment import given_or_installed


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told."""

    on_line: Callable[[str], None] = lambda _: None
    """What takes its time before anything runs."""
    on_event: Callable[[Event], None] = lambda _: None
    on_up: Callable[[Record], None] = lambda _: None


def deploy(
    plan: Path, services: Path | None, folder: Path, tritonserver: Path | None, options: Options, listener: Listener
) -> None:
    """Serve until SIGINT or SIGTERM. InputError, DeviceError, SetupError or StartError say why it cannot be."""
    deployment = read_plan(plan, {} if services is None else workloads_of(services))
    check_made_for(deployment.plan.gpu_type, options.devices)
    batch_ms = shipped_times(deployment) if options.standin else None
    with State(folder, end_left) as state:
        wish = prepare(deployment, batch_ms, state, options)
        with devices_of(options.devices, wish.grants, state, listener.on_line) as devices:
            triton = given_or_installed(tritonserver, listener.on_line)
            fleet = Fleet(deployment.plan.replicas, wish, triton, devices, state, listener.on_event)
            # When this returns all threads have ended: one may have been starting an MPS daemon, or making a group.
            asyncio.run(serve(deployment, fleet, state, options, listener.on_up))
