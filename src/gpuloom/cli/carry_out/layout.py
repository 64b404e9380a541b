"""`gpuloom layout list|plan|apply|export`: what a GPU can be cut into, the steps between cuts, and taking them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.output import Output, emit, print_json
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.gpus.host.cutter import Choice, Cut, Cutter
    from gpuloom.gpus.host.mig_read import GpuState
    from gpuloom.gpus.model import GpuModel, Instance, Layout
    from gpuloom.gpus.steps import Step, StepPlan

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
    _emit_plan(gpu, current, target, plan_steps(gpu, current, target, working), output)


@app.command("apply")
def apply(
    gpu: Annotated[
        int, typer.Option("--gpu", "-g", min=0, metavar="INDEX", help="A GPU of this host; see `gpuloom gpus --host`.")
    ],
    to: Target = None,
    config: Config = None,
    name: ConfigName = None,
    as_found: Annotated[
        bool, typer.Option("--as-found", help="Instead: restore what was there before gpuloom came, and give it up.")
    ] = False,
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

    Needs root. Only idle GPUs that no other manager claims are taken, and work on an instance that stays is not
    touched. If something fails in the middle, what was there before is restored as far as possible; the answer is
    always what the GPU shows afterwards. Exit code 1 means that the target was not, or would not be, reached.
    """
    from gpuloom.gpus.host.cutter import Cutter
    from gpuloom.gpus.host.mig import StepFailed
    from gpuloom.gpus.host.nvml import NoDriver
    from gpuloom.gpus.host.ownership import Refused

    if (to is not None) + (config is not None) + as_found != 1 or (config is None) != (name is None):
        accepted = "--to LAYOUT, --config FILE with --name NAME, or --as-found"
        raise InputError(f"the target is missing or given twice: accepted are {accepted}")
    try:
        with Cutter() as cutter:
            state = _state(cutter, gpu)
            choose, mig = _choice(cutter, state, to, config, name, keep_mig)
            choose(state)  # a layout that is written wrongly is no reason to take the GPU
            if dry_run:
                _emit_dry_run(cutter, state, choose(state), mig, output)
            else:
                _emit_cut(cutter.leave(gpu) if as_found else cutter.apply(gpu, choose, keep_mig=mig), output)
    except (NoDriver, Refused, StepFailed) as reason:
        typer.echo(f"GPU {gpu} was not changed: {reason}", err=True)
        raise typer.Exit(1) from None


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
    rows = _step_rows(gpu, current, plan.steps, plan.must_stop)
    stop = [str(instance) for instance in plan.must_stop]
    if output is Output.json:
        ends = {"model": gpu.name, "from": _written(current), "to": _written(target)}
        print_json({**ends, "steps": rows, "must_stop": stop})
        return
    title = f"{gpu.name}: {_written(current)} {draw(gpu, current)} to {_written(target)} {draw(gpu, target)}"
    emit(rows, output, title if rows else f"{title}: nothing to do")
    if stop and output is Output.table:
        typer.echo(f"has to be checkpointed and stopped first: {', '.join(stop)}")


def _step_rows(
    gpu: "GpuModel", layout: "Layout", steps: "tuple[Step, ...]", stop: "tuple[Instance, ...]" = ()
) -> list[dict[str, object]]:
    from gpuloom.gpus.steps import Destroy, apply_step

    rows: list[dict[str, object]] = []
    for number, step in enumerate(steps, 1):
        layout = apply_step(gpu, layout, step)
        rows.append(
            {
                "step": number,
                "action": "destroy" if isinstance(step, Destroy) else "create",
                "instance": str(step.instance),
                "checkpoint_first": isinstance(step, Destroy) and step.instance in stop,
                "units_after": draw(gpu, layout),
            }
        )
    return rows


def _state(cutter: "Cutter", gpu: int) -> "GpuState":
    count = cutter.count()
    if gpu >= count:
        accepted = f"0 to {count - 1}" if count > 1 else "only 0" if count else "none"
        raise InputError(f"--gpu {gpu}: this host has {count} GPUs; accepted is {accepted}")
    state = cutter.look(gpu)
    if not state.model.mig:
        raise InputError(f"--gpu {gpu}: {state.product} has no MIG, so it cannot be cut")
    return state


def _choice(
    cutter: "Cutter", state: "GpuState", to: str | None, config: Path | None, name: str | None, keep_mig: bool
) -> "tuple[Choice, bool]":
    """How to choose the exact layout once the GPU is ours, and whether MIG stays on with an empty one."""
    from gpuloom.gpus.host.ownership import Refused
    from gpuloom.gpus.layouts import meanings
    from gpuloom.gpus.migparted import read_configs
    from gpuloom.gpus.steps import easiest

    if to is not None:
        targets = meanings(state.model, to)
    elif config is not None:
        targets = _from_config(state.model, config, name, state.index)
        entries = [entry for entry in read_configs(config)[str(name)] if entry.about(state.model, state.index)]
        keep_mig = keep_mig or entries[-1].mig_enabled
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


def _emit_dry_run(cutter: "Cutter", state: "GpuState", target: "Layout", keep_mig: bool, output: Output) -> None:
    from gpuloom.gpus.steps import plan_steps

    mig = bool(target) or keep_mig
    reason = cutter.managed(state.index) or cutter.refusal(state, target, mig)
    plan = plan_steps(state.model, state.occupied, target, state.busy)
    rows = _step_rows(state.model, state.occupied, plan.steps, plan.must_stop)
    gpu = state.model
    if output is Output.json:
        ends = {"gpu": state.index, "model": gpu.name, "from": _written(state.occupied), "to": _written(target)}
        modes = {"mig_before": state.mig, "mig_after": mig}
        print_json({**ends, **modes, "steps": rows, "dry_run": True, "would_be_refused": reason})
    else:
        switch = "" if mig == state.mig else f", switching MIG {'on' if mig else 'off'}"
        start = f"{_written(state.occupied)} {draw(gpu, state.occupied)}"
        title = f"GPU {state.index}, {gpu.name}, dry run: {start} to {_written(target)} {draw(gpu, target)}{switch}"
        emit(rows, output, title if rows or switch else f"{title}: nothing to do")
    if reason is not None:
        typer.echo(f"GPU {state.index} would not be changed: {reason}", err=True)
        raise typer.Exit(1)


def _emit_cut(cut: "Cut", output: Output) -> None:
    rows: list[dict[str, object]] = [
        {"instance": str(instance), "uuid": uuid} for instance, uuid in sorted(cut.uuids.items())
    ]
    now = None if cut.layout is None else _written(cut.layout)
    if output is Output.json:
        ends = {"gpu": cut.gpu, "model": cut.model.name, "from": _written(cut.before), "to": _written(cut.target)}
        steps = _step_rows(cut.model, cut.before, cut.steps)
        result = {"reached": cut.reached, "reason": cut.reason, "layout": now, "mig": cut.mig}
        half_made = [str(instance) for instance in cut.half_made]
        print_json({**ends, "steps": steps, "dry_run": False, **result, "half_made": half_made, "instances": rows})
    else:
        bar = "" if cut.layout is None else f" {draw(cut.model, cut.layout)}"
        title = (
            f"GPU {cut.gpu}, {cut.model.name}: {now or 'it no longer answers'}{bar}, MIG {'on' if cut.mig else 'off'}"
        )
        emit(rows, output, title)
    if cut.reason is not None:
        left = (
            ""
            if now is None
            else f"; now it has {now.replace('none', 'no instance')}, MIG {'on' if cut.mig else 'off'}"
        )
        typer.echo(f"GPU {cut.gpu} did not reach {_written(cut.target)}: {cut.reason}{left}", err=True)
        raise typer.Exit(1)


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
