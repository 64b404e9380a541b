"""`gpuloom doctor`: what gpuloom can do on this host, what keeps it from the rest, and which limits are real here."""

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from gpuloom.cli.devices import Devices
from gpuloom.cli.output import Output, emit, print_json


def doctor(
    device: Devices = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.table,
) -> None:
    """Check this host: driver, GPUs, their modes and holders, other managers, permissions, disk, MPS, cgroups, DCGM.

    \b
    gpuloom doctor
    gpuloom doctor --output json
    gpuloom doctor --device cpu           this machine's CPU time as a device, and how steady it is

    And say which limits are enforced here. Nothing is changed. With --device the same work is run again and again, for
    some seconds. Exit code 1 means that to cut a GPU (or such a device) of this host would fail; everything that works
    on emulated GPUs (plan, simulate, compare) works all the same.
    """
    from gpuloom.gpus.host.cpu_doctor import examine_cpu
    from gpuloom.gpus.host.doctor import examine

    host = examine_cpu(device, _measuring) if device else examine()
    if output is Output.json:
        print_json(asdict(host))
    else:
        cut, share = "" if host.can_cut else "not ", "" if host.can_share else "not "
        what = "CPU devices" if device else "GPUs"
        emit(host.checks, output, f"gpuloom can {cut}cut {what} and can {share}share them here")
        if output is Output.table:
            typer.echo()
            emit(host.sharing, output, "what a share means on this host")
    if not host.can_cut:
        raise typer.Exit(1)


def _measuring(uuid: str) -> None:
    if sys.stderr.isatty():
        typer.echo(f"measuring how steady {uuid} is: some five seconds", err=True)
