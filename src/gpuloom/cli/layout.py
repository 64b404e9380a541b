"""`gpuloom layout list|plan|export`: what a GPU can be cut into, and the steps from one cut to another."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.output import Output, emit, print_json
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.gpus.model import GpuModel, Instance, Layout
    from gpuloom.gpus.steps import StepPlan

app = typer.Typer(no_args_is_help=True, help="What a GPU can be cut into, and the steps from one cut to another.")

Model = Annotated[str, typer.Option("--model", "-m", metavar="NAME", help="GPU model; see `gpuloom gpus`.")]
Printed = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]


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
    rows = [_row(gpu, layout) for layout in shown]
    emit(rows, output, f"{gpu.name}: {len(rows)} {'layouts of base profiles' if every else 'maximal layouts'}")


def _list_beside(gpu: "GpuModel", used: "Layout", profile: str | None, output: Output) -> None:
    from gpuloom.gpus import layouts
    from gpuloom.gpus.fragmentation import fragmentation, free_slices, largest_placeable

    names = list(gpu.by_name) if profile is None else [layouts.profile_of(gpu, profile).name]
    rows: list[dict[str, object]] = [
        {"add": str(place), **_row(gpu, layouts.add(used, place))}
        for name in names
        for place in layouts.places_beside(gpu, used, name)
    ]
    facts = (
        f"{free_slices(gpu, used)} compute slices free, largest placeable {largest_placeable(gpu, used)}, "
        f"fragmentation {fragmentation(gpu, used):.2f}"
    )
    title = f"{gpu.name} with {_written(used)} {draw(gpu, used)}: {facts}"
    emit(rows, output, title if rows else f"{title}; {profile or 'nothing'} {'cannot' if profile else 'can'} be added")
    if not rows:
        raise typer.Exit(1)


@app.command("plan")
def plan(
    start: Annotated[str, typer.Option("--from", metavar="LAYOUT", help="The layout that is there.")],
    to: Annotated[str | None, typer.Option("--to", metavar="LAYOUT", help="The layout that is wanted.")] = None,
    model: Model = "A100-40GB",
    busy: Annotated[
        str, typer.Option(metavar="INSTANCES", help="Instances with work on them, such as 3g.20gb@4; or `all`.")
    ] = "",
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take the target from this mig-parted file …")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="… and this of its configurations.")] = None,
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
    _emit_plan(gpu, current, target, plan_steps(gpu, current, target, working), output)


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


def draw(gpu: "GpuModel", layout: "Layout") -> str:
    """A layout as a bar of memory units: `|4444|22|1|·` is 4g at 0, 2g at 4, 1g at 6, and unit 7 free."""
    bar, unit = "|", 0
    for instance in layout:
        profile = gpu.by_name[instance.profile]
        bar += "·" * (instance.start - unit) + ("|" if instance.start > unit else "")
        bar += str(profile.slices) * profile.size + "|"
        unit = instance.start + profile.size
    return bar + ("·" * (gpu.units - unit) + "|" if unit < gpu.units else "")


def _with_mig(name: str) -> "GpuModel":
    from gpuloom.gpus.catalogue import MODELS, find

    gpu = find(name)
    if not gpu.mig:
        able = ", ".join(model.name for model in MODELS.values() if model.mig)
        raise InputError(f"{gpu.name} has no MIG, so it cannot be cut; accepted are {able}")
    return gpu


def _written(layout: "Layout") -> str:
    return ",".join(map(str, layout)) or "none"


def _row(gpu: "GpuModel", layout: "Layout") -> dict[str, object]:
    from gpuloom.gpus.fragmentation import fragmentation, free_slices
    from gpuloom.gpus.layouts import room, slices_of

    return {
        "units": draw(gpu, layout),
        "layout": _written(layout),
        "slices": list(slices_of(gpu, layout)),
        "free_slices": free_slices(gpu, layout),
        "still_placeable": list(room(gpu, layout)),
        "fragmentation": round(fragmentation(gpu, layout), 3),
    }


def _emit_plan(gpu: "GpuModel", current: "Layout", target: "Layout", plan: "StepPlan", output: Output) -> None:
    from gpuloom.gpus.steps import Destroy, apply_step

    rows: list[dict[str, object]] = []
    layout = current
    for number, step in enumerate(plan.steps, 1):
        layout = apply_step(gpu, layout, step)
        rows.append(
            {
                "step": number,
                "action": "destroy" if isinstance(step, Destroy) else "create",
                "instance": str(step.instance),
                "checkpoint_first": isinstance(step, Destroy) and step.instance in plan.must_stop,
                "units_after": draw(gpu, layout),
            }
        )
    stop = [str(instance) for instance in plan.must_stop]
    if output is Output.json:
        ends = {"model": gpu.name, "from": _written(current), "to": _written(target)}
        print_json({**ends, "steps": rows, "must_stop": stop})
        return
    title = f"{gpu.name}: {_written(current)} {draw(gpu, current)} to {_written(target)} {draw(gpu, target)}"
    emit(rows, output, title if rows else f"{title}: nothing to do")
    if stop and output is Output.table:
        typer.echo(f"has to be checkpointed and stopped first: {', '.join(stop)}")


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


def _from_config(gpu: "GpuModel", config: Path | None, name: str | None, device: int) -> "tuple[Layout, ...]":
    from gpuloom.gpus.migparted import layouts_for, read_configs

    assert config is not None
    assert name is not None
    return layouts_for(read_configs(config), name, gpu, device, str(config))
