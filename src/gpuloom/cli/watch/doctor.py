"""`gpuloom doctor`: what gpuloom can do on this host, what keeps it from the rest, and which limits are real here."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gpuloom.cli.devices import Devices
from gpuloom.cli.output import Output, emit, print_json
from gpuloom.errors import InputError


def doctor(
    device: Devices = None,
    selftest: Annotated[
        bool, typer.Option("--selftest", help="Try a GPU instead: all that gpuloom needs of its driver, written down.")
    ] = False,
    gpu: Annotated[
        int | None,
        typer.Option("--gpu", "-g", min=0, metavar="INDEX", help="With --selftest: which; see `gpuloom gpus --host`."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --selftest: do not ask.")] = False,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --selftest: the transcript. [gpuloom-selftest-MODEL.json]"),
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.table,
) -> None:
    """Check this host: driver, GPUs, their modes and holders, other managers, permissions, disk, MPS, cgroups, DCGM.

    \b
    gpuloom doctor
    gpuloom doctor --output json
    gpuloom doctor --device cpu           this machine's CPU time as a device, and how steady it is
    gpuloom doctor --selftest --gpu 0     cut an idle GPU in every way, and write down what the driver answers

    And say which limits are enforced here. Nothing is changed, but by --selftest, which asks before and restores the
    GPU: see docs/selftest.md. With --device the same work is run again and again, for some seconds. Exit code 1 means
    that to cut a GPU (or such a device) of this host would fail, or that a part of the self-test did; everything that
    works on emulated GPUs (plan, simulate, compare) works all the same.
    """
    if selftest:
        if device:
            raise InputError("--selftest is for GPUs: a CPU device has no driver that could be otherwise than expected")
        from gpuloom.cli.watch.selftest import selftest as test_gpu

        test_gpu(gpu, yes, write, output)
        return
    if gpu is not None or yes or write is not None:
        raise InputError("--gpu, --yes and --write are for --selftest: name it too")
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
