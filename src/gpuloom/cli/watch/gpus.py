"""`gpuloom gpus`: the GPUs that gpuloom knows, and those of this host."""

from typing import Annotated

import typer

from gpuloom.cli.devices import Devices
from gpuloom.cli.output import Output, emit
from gpuloom.errors import InputError


def gpus(
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="NAME", help="Show the profiles of this GPU model.")
    ] = None,
    host: Annotated[
        bool, typer.Option("--host", help="Show the GPUs of this host, as its driver reports them.")
    ] = False,
    device: Devices = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.table,
) -> None:
    """Show the GPUs that gpuloom knows and how each can be cut, or the GPUs of this host.

    \b
    gpuloom gpus                          every known model
    gpuloom gpus --model H100             its profiles: starts, memory, SMs
    gpuloom gpus --host --output json     this machine's GPUs and their instances

    gpuloom gpus --device cpu             this machine's CPU time as a device: its profiles, instances, who runs there

    With --host or --device, exit code 1 means that this host has none that can be asked; standard error says why.
    """
    if (device is not None) + host + (model is not None) > 1:
        raise InputError("--device, --host and --model ask for different things: name one of them")
    if device:
        _emit_devices(device, output)
    elif host:
        _emit_host(output)
    elif model is not None:
        _emit_profiles(model, output)
    else:
        _emit_catalogue(output)


def _emit_catalogue(output: Output) -> None:
    from gpuloom.gpus.catalogue import MODELS, base_profiles
    from gpuloom.gpus.layouts import maximal, total_slices

    rows: list[dict[str, object]] = [
        {
            "model": model.name,
            "mem_mib": model.mem_mib,
            "sms": model.sms,
            "mig": model.mig,
            "compute_slices": total_slices(model) or None,
            "memory_units": model.units or None,
            "maximal_layouts": len(maximal(model)) or None,
            "base_profiles": [profile.name for profile in base_profiles(model)],
        }
        for model in MODELS.values()
    ]
    emit(rows, output)


def _emit_profiles(name: str, output: Output) -> None:
    from gpuloom.gpus.catalogue import base_profiles, find

    model = find(name)
    base = base_profiles(model)
    rows: list[dict[str, object]] = [
        {
            "profile": profile.name,
            "nvml_id": profile.nvml_id,
            "compute_slices": profile.slices,
            "memory_units": profile.size,
            "starts": list(profile.starts),
            "mem_mib": profile.mem_mib,
            "sms": profile.sms,
            "limit": profile.limit,
            "base": profile in base,
        }
        for profile in model.profiles
    ]
    title = f"{model.name}: {model.mem_mib:,} MiB, {model.sms} SMs"
    emit(rows, output, f"{title}, {model.units} memory units" if model.mig else f"{title}, no MIG: always used whole")


def _emit_devices(names: list[str], output: Output) -> None:
    from gpuloom.gpus.host.cutter import cutter_of
    from gpuloom.gpus.host.driver import StepFailed
    from gpuloom.gpus.host.nvml import NoDriver

    try:
        with cutter_of(names) as cutter:
            states = [cutter.look(index) for index in range(cutter.count())]
            taken = [cutter.found(state.index) is not None for state in states]
    except (NoDriver, StepFailed) as reason:
        typer.echo(f"no such device here: {reason}", err=True)
        raise typer.Exit(1) from None
    rows: list[dict[str, object]] = [
        {
            "device": state.index,
            "uuid": state.uuid,
            "what": state.product,
            "mem_mib": state.model.mem_mib,
            "profiles": [f"{profile.name} ({profile.mem_mib} MiB)" for profile in state.model.profiles],
            "cut": state.mig,
            "instances": [str(part.instance) for part in state.parts],
            "processes": len(state.processes),
            "taken_by_gpuloom": ours,
        }
        for state, ours in zip(states, taken, strict=True)
    ]
    emit(rows, output)


def _emit_host(output: Output) -> None:
    from gpuloom.gpus.host.nvml import discover

    host = discover()
    if host.reason is not None:
        typer.echo(f"no GPU on this host: {host.reason}", err=True)
    if host.gpus or output is not Output.table:
        rows: list[dict[str, object]] = [
            {
                "gpu": gpu.index,
                "name": gpu.name,
                "model": None if gpu.model is None else gpu.model.name,
                "mem_mib": gpu.mem_mib,
                "mig": gpu.mig_current,
                "mig_after_reset": gpu.mig_pending,
                "instances": None if gpu.instances is None else [str(instance) for instance in gpu.instances],
                "uuid": gpu.uuid,
            }
            for gpu in host.gpus
        ]
        emit(rows, output, "" if host.driver is None else f"NVIDIA driver {host.driver}")
    if not host.gpus:
        raise typer.Exit(1)
