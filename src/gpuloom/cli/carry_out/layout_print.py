"""How `gpuloom layout` prints: a layout, steps, what would be done, and what was."""

from typing import TYPE_CHECKING

import typer

from gpuloom.cli.output import Output, emit, print_json

if TYPE_CHECKING:
    from gpuloom.gpus.host.cutter import CutOutcome, Cutter
    from gpuloom.gpus.host.driver import GpuState
    from gpuloom.gpus.model import GpuModel, Instance, Layout
    from gpuloom.gpus.steps import Step, StepPlan


def _mode(model: "GpuModel", on: bool) -> str:
    if model.noun == "GPU":
        return f"MIG {'on' if on else 'off'}"
    return "cut" if on else "whole"


def layout_row(gpu: "GpuModel", layout: "Layout") -> dict[str, object]:
    from gpuloom.gpus.fragmentation import fragmentation, free_slices
    from gpuloom.gpus.layouts import draw, room, slices_of, written

    return {
        "units": draw(gpu, layout),
        "layout": written(layout),
        "slices": list(slices_of(gpu, layout)),
        "free_slices": free_slices(gpu, layout),
        "still_placeable": list(room(gpu, layout)),
        "fragmentation": round(fragmentation(gpu, layout), 3),
    }


def print_plan(gpu: "GpuModel", current: "Layout", target: "Layout", plan: "StepPlan", output: Output) -> None:
    from gpuloom.gpus.layouts import draw, written

    rows = _step_rows(gpu, current, plan.steps, plan.must_stop)
    stop = [str(instance) for instance in plan.must_stop]
    if output is Output.json:
        ends = {"model": gpu.name, "from": written(current), "to": written(target)}
        print_json({**ends, "steps": rows, "must_stop": stop})
        return
    title = f"{gpu.name}: {written(current)} {draw(gpu, current)} to {written(target)} {draw(gpu, target)}"
    emit(rows, output, title if rows else f"{title}: nothing to do")
    if stop and output is Output.table:
        typer.echo(f"has to be checkpointed and stopped first: {', '.join(stop)}")


def _step_rows(
    gpu: "GpuModel", layout: "Layout", steps: "tuple[Step, ...]", stop: "tuple[Instance, ...]" = ()
) -> list[dict[str, object]]:
    from gpuloom.gpus.layouts import draw
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


def print_dry_run(cutter: "Cutter", state: "GpuState", target: "Layout", keep_mig: bool, output: Output) -> None:
    from gpuloom.gpus.layouts import draw, written
    from gpuloom.gpus.steps import plan_steps

    mig = bool(target) or keep_mig
    reason = cutter.managed(state.index) or cutter.refusal(state, target, mig)
    plan = plan_steps(state.model, state.occupied, target, state.busy)
    rows = _step_rows(state.model, state.occupied, plan.steps, plan.must_stop)
    gpu, name = state.model, f"{state.model.noun} {state.index}"
    if output is Output.json:
        ends = {"gpu": state.index, "model": gpu.name, "from": written(state.occupied), "to": written(target)}
        modes = {"mig_before": state.mig, "mig_after": mig}
        print_json({**ends, **modes, "steps": rows, "dry_run": True, "would_be_refused": reason})
    else:
        switch = "" if mig == state.mig else f", switching to {_mode(gpu, mig)}"
        start = f"{written(state.occupied)} {draw(gpu, state.occupied)}"
        title = f"{name}, {gpu.name}, dry run: {start} to {written(target)} {draw(gpu, target)}{switch}"
        emit(rows, output, title if rows or switch else f"{title}: nothing to do")
    if reason is not None:
        typer.echo(f"{name} would not be changed: {reason}", err=True)
        raise typer.Exit(1)


def print_cut(cut: "CutOutcome", output: Output) -> None:
    from gpuloom.gpus.layouts import draw, written

    name, mode = f"{cut.model.noun} {cut.gpu}", _mode(cut.model, bool(cut.mig))
    rows: list[dict[str, object]] = [
        {"instance": str(instance), "uuid": uuid} for instance, uuid in sorted(cut.uuids.items())
    ]
    now = None if cut.layout is None else written(cut.layout)
    if output is Output.json:
        ends = {"gpu": cut.gpu, "model": cut.model.name, "from": written(cut.before), "to": written(cut.target)}
        steps = _step_rows(cut.model, cut.before, cut.steps)
        result = {"reached": cut.reached, "reason": cut.reason, "layout": now, "mig": cut.mig}
        half_made = [str(instance) for instance in cut.half_made]
        print_json({**ends, "steps": steps, "dry_run": False, **result, "half_made": half_made, "instances": rows})
    else:
        bar = "" if cut.layout is None else f" {draw(cut.model, cut.layout)}"
        shown = f"{now or 'it no longer answers'}{bar}, {mode}"
        emit(rows, output, f"{name}, {cut.model.name}: {shown}")
    check_reached(cut)


def check_reached(cut: "CutOutcome") -> None:
    """End the command with the reason, if it was not."""
    from gpuloom.gpus.layouts import written

    if cut.reason is not None:
        name, mode = f"{cut.model.noun} {cut.gpu}", _mode(cut.model, bool(cut.mig))
        left = (
            "" if cut.layout is None else f"; now it has {written(cut.layout).replace('none', 'no instance')}, {mode}"
        )
        typer.echo(f"{name} did not reach {written(cut.target)}: {cut.reason}{left}", err=True)
        raise typer.Exit(1)
