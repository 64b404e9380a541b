"""`gpuloom layout list|plan|apply|export`: what a GPU can be cut into, the steps between cuts, and taking them."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.carry_out import layout_print
from gpuloom.cli.devices import Devices
from gpuloom.cli.output import Output, emit
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.gpus.host.cutter import Choice, CutOutcome, Cutter
    from gpuloom.gpus.host.driver import GpuState
    from gpuloom.gpus.migparted import Configs, Entry
    from gpuloom.gpus.model import GpuModel, Instance, Layout

app = typer.Typer(
    no_args_is_help=True, help="What a GPU can be cut into, the steps from one cut to another, and taking them."
)

Model = Annotated[str, typer.Option("--model", "-m", metavar="NAME", help="GPU model; see `gpuloom gpus`.")]
Printed = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]
Target = Annotated[str | None, typer.Option("--to", metavar="LAYOUT", help="The layout that is wanted.")]
Config = Annotated[Path | None, typer.Option(metavar="FILE", help="Take the target from this mig-parted file …")]
ConfigName = Annotated[str | None, typer.Option(metavar="NAME", help="… and this of its configurations.")]


@app.command("list")
def list_layouts(
    model: Model = "A100-40GB",
    every: Annotated[
        bool, typer.Option("--all", help="Partial layouts too, not only those with no room left.")
    ] = False,
    beside: Annotated[
        str | None, typer.Option(metavar="LAYOUT", help="Show instead what can be added beside these instances.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="With --beside: only where this profile can be added.")
    ] = None,
    output: Printed = Output.table,
) -> None:
    """Show the layouts of a GPU model, or what can be added beside what runs.

    \b
    gpuloom layout list --model A30
    gpuloom layout list --beside "1g.5gb@0,1g.5gb@1,1g.5gb@5"
    gpuloom layout list --beside 4g.20gb --profile 3g.20gb

    A layout is written by compute slices (3,2,2), by profiles (3g.20gb,2g.10gb) or exactly (3g.20gb@4,1g.5gb@0).
    In the drawing each character is a memory unit, its digit the instance's compute slices, and · is free.
    With --beside, exit code 1 means that nothing can be added.
    """
    from gpuloom.gpus import layouts

    gpu = _with_mig(model)
    if beside is None and profile is not None:
        raise InputError("--profile needs --beside: it asks where one more instance would fit")
    if beside is not None:
        _list_beside(gpu, layouts.parse(gpu, beside), profile, output)
        return
    shown = layouts.every(gpu) if every else layouts.maximal(gpu)
    rows = [layout_print.layout_row(gpu, layout) for layout in shown]
    emit(rows, output, f"{gpu.name}: {len(rows)} {'layouts of base profiles' if every else 'maximal layouts'}")


def _list_beside(gpu: "GpuModel", used: "Layout", profile: str | None, output: Output) -> None:
    from gpuloom.gpus import layouts
    from gpuloom.gpus.fragmentation import fragmentation, free_slices, largest_placeable

    names = list(gpu.by_name) if profile is None else [layouts.profile_of(gpu, profile).name]
    rows: list[dict[str, object]] = [
        {"add": str(place), **layout_print.layout_row(gpu, layouts.add(used, place))}
        for name in names
        for place in layouts.places_beside(gpu, used, name)
    ]
    facts = (
        f"{free_slices(gpu, used)} compute slices free, largest placeable {largest_placeable(gpu, used)}, "
        f"fragmentation {fragmentation(gpu, used):.2f}"
    )
    title = f"{gpu.name} with {layouts.written(used)} {layouts.draw(gpu, used)}: {facts}"
    emit(rows, output, title if rows else f"{title}; {profile or 'nothing'} {'cannot' if profile else 'can'} be added")
    if not rows:
        raise typer.Exit(1)


@app.command("plan")
def plan(
    start: Annotated[str, typer.Option("--from", metavar="LAYOUT", help="The layout that is there.")],
    to: Target = None,
    model: Model = "A100-40GB",
    busy: Annotated[
        str, typer.Option(metavar="INSTANCES", help="Instances with work on them, such as 3g.20gb@4; or `all`.")
    ] = "",
    config: Config = None,
    name: ConfigName = None,
    device: Annotated[int, typer.Option(min=0, metavar="INDEX", help="GPU index, for entries about some GPUs.")] = 0,
    output: Printed = Output.table,
) -> None:
    """Show the fewest destroy and create steps from one layout to another, and whose work has to stop.

    \b
    gpuloom layout plan --from 3g.20gb@4,1g.5gb@0 --to 3,2,2 --busy 3g.20gb@4
    gpuloom layout plan --from none --config mig.yaml --name balanced --output json

    Where the target leaves placements open, the plan keeps the most busy instances, then needs the fewest steps.
    """
    from gpuloom.gpus.layouts import meanings, parse
    from gpuloom.gpus.steps import easiest, plan_steps

    gpu = _with_mig(model)
    current = parse(gpu, start)
    working = _busy(current, busy)
    if (to is None) == (config is None) or (config is None) != (name is None):
        raise InputError(
            "the target is missing or given twice: accepted are --to LAYOUT, or --config FILE with --name NAME"
        )
    targets = meanings(gpu, to) if to is not None else _from_config(gpu, config, name, device)
    target = easiest(gpu, current, targets, working)
    assert target is not None  # meanings and _from_config have complained
    layout_print.print_plan(gpu, current, target, plan_steps(gpu, current, target, working), output)


@app.command("apply")
def apply(
    gpu: Annotated[
        int | None,
        typer.Option("--gpu", "-g", min=0, metavar="INDEX", help="A GPU of this host; see `gpuloom gpus --host`."),
    ] = None,
    to: Target = None,
    config: Config = None,
    name: ConfigName = None,
    as_found: Annotated[
        bool, typer.Option("--as-found", help="Instead: restore what was there before gpuloom came, and give it up.")
    ] = False,
    device: Devices = None,
    keep_mig: Annotated[
        bool, typer.Option("--keep-mig", help="With an empty layout: leave MIG mode on (it is switched off otherwise).")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")] = False,
    output: Printed = Output.table,
) -> None:
    """Cut a GPU of this host: switch MIG on if need be, destroy and create instances, and read back what is there.

    \b
    gpuloom layout apply --gpu 0 --to 3,2,2 --dry-run
    gpuloom layout apply --gpu 0 --to 3g.20gb@4,2g.10gb@0 --output json
    gpuloom layout apply --gpu 1 --config mig.yaml --name balanced
    gpuloom layout apply --gpu 0 --as-found
    gpuloom layout apply --device cpu --to 3,2,2

    Needs root; with --device cpu, cgroups that this user may write, and --gpu counts the devices that it names (the
    first if left out). Only idle GPUs that no other manager claims are taken, and work on an instance that stays is
    not touched. If something fails in the middle, what was there before is restored as far as possible; the answer is
    always what the GPU shows afterwards. Exit code 1 means that the target was not, or would not be, reached.
    """
    from gpuloom.gpus.host.cutter import cutter_of
    from gpuloom.gpus.host.driver import StepFailed
    from gpuloom.gpus.host.nvml import NoDriver
    from gpuloom.gpus.host.ownership import Refused

    if (to is not None) + (config is not None) + as_found != 1 or (config is None) != (name is None):
        accepted = "--to LAYOUT, --config FILE with --name NAME, or --as-found"
        raise InputError(f"the target is missing or given twice: accepted are {accepted}")
    if gpu is None and not device:
        raise InputError("--gpu is missing: which of this host's GPUs? `gpuloom gpus --host` lists them")
    gpu = gpu or 0
    try:
        with cutter_of(device or ()) as cutter:
            cutter.notice = partial(typer.echo, err=True)
            state = _state(cutter, gpu)
            with _with_profiles(cutter, state, _wants_instances(state, to, config, name), dry_run) as state:
                choose, mig = _choice(cutter, state, to, config, name, keep_mig)
                choose(state)  # a layout that is written wrongly is no reason to take the GPU
            if dry_run:
                layout_print.print_dry_run(cutter, state, choose(state), mig, output)
            else:
                cut = _as_found(cutter, gpu) if as_found else cutter.apply(gpu, choose, keep_mig=mig)
                layout_print.print_cut(cut, output)
    except (NoDriver, Refused, StepFailed) as reason:
        noun = "device" if device else "GPU"  # it may not even have been found
        typer.echo(f"{noun} {gpu} was not changed: {reason}", err=True)
        raise typer.Exit(1) from None


def _as_found(cutter: "Cutter", gpu: int) -> "CutOutcome":
    """MPS daemons that a killed self-test left would hold the GPU; once it is locked, nobody else uses them."""
    from gpuloom.gpus.host.mps.daemon import end_daemons
    from gpuloom.gpus.host.ownership import state_dir

    if cutter.found(gpu) is not None:
        state = cutter.take(gpu)
        end_daemons([state.uuid, *state.uuids.values()], state_dir() / "mps")
    return cutter.leave(gpu)


@app.command("export")
def export(
    layout: Annotated[str, typer.Argument(metavar="LAYOUT", help="The layout to write.")],
    model: Model = "A100-40GB",
    name: Annotated[str, typer.Option(metavar="NAME", help="What to call the configuration.")] = "gpuloom",
) -> None:
    """Write a layout as a mig-parted file, to standard output. The format has no placements: they are left out.

    \b
    gpuloom layout export 3,2,2 --name balanced > mig.yaml
    """
    from gpuloom.gpus.layouts import parse
    from gpuloom.gpus.migparted import dump_configs, entry_for

    gpu = _with_mig(model)
    typer.echo(dump_configs({name: (entry_for(gpu, parse(gpu, layout)),)}), nl=False)


def _with_mig(name: str) -> "GpuModel":
    from gpuloom.gpus.catalogue import MODELS, find

    gpu = find(name)
    if not gpu.mig:
        able = ", ".join(model.name for model in MODELS.values() if model.mig)
        raise InputError(f"{gpu.name} has no MIG, so it cannot be cut; accepted are {able}")
    return gpu


def _state(cutter: "Cutter", gpu: int) -> "GpuState":
    count = cutter.count()
    if gpu >= count:
        accepted = f"0 to {count - 1}" if count > 1 else "only 0" if count else "none"
        raise InputError(f"--gpu {gpu}: this host has {count} {cutter.noun}s; accepted is {accepted}")
    state = cutter.look(gpu)
    if not state.model.mig and state.told:
        raise InputError(f"--gpu {gpu}: {state.product} has no MIG, so it cannot be cut")
    return state


def _wants_instances(state: "GpuState", to: str | None, config: Path | None, name: str | None) -> bool:
    if config is not None:
        return bool(_entry(state, config, name).mig_devices)
    return to is not None and to.strip().lower() not in ("", "none")


@contextmanager
def _with_profiles(cutter: "Cutter", state: "GpuState", wanted: bool, dry_run: bool) -> "Iterator[GpuState]":
    """The GPU with what it can be cut into, if that is wanted. Of a board that is not in the catalogue, an old driver
    tells it only while MIG is on: then it is switched on first, and back if what is wanted turns out to be wrong.
    """
    from gpuloom.gpus.host.ownership import Refused

    if not wanted or state.model.mig:
        yield state
        return
    if dry_run:
        switch = f"`nvidia-smi -i {state.index} -mig 1`"
        raise Refused(f"its driver tells what {state.product} can be cut into only while MIG is on: {switch}")
    layout_print.check_reached(cut := cutter.apply(state.index, (), keep_mig=True))
    try:
        yield cutter.look(cut.gpu)
    except InputError:
        cutter.leave(cut.gpu)
        raise


def _choice(
    cutter: "Cutter", state: "GpuState", to: str | None, config: Path | None, name: str | None, keep_mig: bool
) -> "tuple[Choice, bool]":
    """How to choose the exact layout once the GPU is ours, and whether MIG stays on with an empty one."""
    from gpuloom.gpus.host.ownership import Refused
    from gpuloom.gpus.layouts import meanings
    from gpuloom.gpus.steps import easiest

    if to is not None:
        targets = meanings(state.model, to)
    elif config is not None:
        targets = _from_config(state.model, config, name, state.index, state.board)
        keep_mig = keep_mig or _entry(state, config, name).mig_enabled
    else:
        found = cutter.found(state.index)
        if found is None:
            raise Refused("gpuloom has not taken it, so there is nothing to restore")
        targets, keep_mig = (found.layout,), found.mig

    def choose(now: "GpuState") -> "Layout":
        target = easiest(now.model, now.occupied, targets, now.busy)
        assert target is not None  # the readers of layouts have complained
        return target

    return choose, keep_mig


def _busy(current: "Layout", text: str) -> "frozenset[Instance]":
    """Busy instances must be named exactly: guessing where work runs would be guessing what to kill."""
    if text.strip().lower() == "all":
        return frozenset(current)
    there = {str(instance): instance for instance in current}
    wanted = [item.strip() for item in text.split(",") if item.strip()]
    for item in wanted:
        if item not in there:
            raise InputError(f"--busy: {item!r} is not in the layout --from; accepted are {', '.join(there) or 'none'}")
    return frozenset(there[item] for item in wanted)


def _from_config(
    gpu: "GpuModel", config: Path | None, name: str | None, device: int, board: str | None = None
) -> "tuple[Layout, ...]":
    from gpuloom.gpus.migparted import layouts_for

    assert config is not None
    assert name is not None
    return layouts_for(_configs(config), name, gpu, device, str(config), board)


def _entry(state: "GpuState", config: Path, name: str | None) -> "Entry":
    from gpuloom.gpus.migparted import entry_about

    return entry_about(_configs(config), str(name), state.model, state.index, str(config), state.board)


def _configs(path: Path) -> "Configs":
    """Of mig-parted, by name."""
    from gpuloom.gpus.migparted import parse_configs
    from gpuloom.work.source import read_text

    return parse_configs(read_text(path, "mig-parted's `mig-configs` (YAML)"), str(path))
