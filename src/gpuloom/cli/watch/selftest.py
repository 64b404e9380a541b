"""`gpuloom doctor --selftest`: asks, shows how far it is, prints what came of it, and says where the transcript is."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gpuloom.cli.interrupts import interruptible
from gpuloom.cli.output import Output, emit, print_json
from gpuloom.cli.progress import bar
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.gpus.host.driver import GpuState
    from gpuloom.gpus.host.selftest.run import SelfTest
    from gpuloom.gpus.host.selftest.transcript import Place, Transcript

STOPPING = ("stopping; first the GPU is brought back to how it was found", "the GPU is being brought back already")


def selftest(gpu: int | None, yes: bool, write: Path | None, output: Output) -> None:
    """Test one GPU of this host; ends with the exit code that says how it went."""
    from gpuloom.gpus.host.driver import StepFailed
    from gpuloom.gpus.host.nvml import NoDriver
    from gpuloom.gpus.host.ownership import Refused
    from gpuloom.gpus.host.selftest.run import SelfTest
    from gpuloom.gpus.host.selftest.transcript import Place

    if gpu is None:
        raise InputError("--gpu is missing: which of this host's GPUs? `gpuloom gpus --host` lists them")
    try:
        test = SelfTest(gpu)
        state = _may_begin(test)
        if not yes:
            _ask(state)
        place = Place(write or Path(f"gpuloom-selftest-{_file_name(state)}.json"))
        try:
            transcript = _carry_out(test)
        except BaseException:
            place.give_up()
            raise
    except (NoDriver, Refused, StepFailed) as reason:
        typer.echo(f"GPU {gpu} was not tested, and nothing was changed: {reason}", err=True)
        raise typer.Exit(1) from None
    _tell(transcript, place, output)


def _may_begin(test: "SelfTest") -> "GpuState":
    from gpuloom.gpus.host.ownership import Refused

    count, state, reason = test.look()
    if state is None:
        accepted = f"0 to {count - 1}" if count > 1 else "only 0" if count else "none"
        raise InputError(f"--gpu {test.gpu}: this host has {count} GPUs; accepted is {accepted}")
    if reason is not None:
        raise Refused(reason)
    return state


def _ask(state: "GpuState") -> None:
    if not sys.stdin.isatty():
        raise InputError(
            "--selftest changes the GPU and asks before, and there is no terminal to ask: accepted is --yes"
        )
    there = ", ".join(map(str, state.occupied))
    cuts = "MIG is switched on and off, every profile is made and removed, " if state.model.mig else ""
    typer.echo(
        f"GPU {state.index} ({state.product}): {cuts}an MPS daemon is run, processes on it are started and killed.\n"
        f"It is idle now{f', and cut into {there}' if there else ''}. At the end it is brought back to that, after "
        "Ctrl-C or an error too; UUIDs of instances may be others.\n"
        f"Should gpuloom be killed with -9, `gpuloom layout apply --gpu {state.index} --as-found` brings it back.\n"
        "It takes some minutes. What the driver answers is written to one file, with nothing in it that says whose "
        "machine this is.",
        err=True,
    )
    typer.confirm("Begin?", abort=True, err=True)


def _file_name(state: "GpuState") -> str:
    return re.sub(r"[^0-9A-Za-z]+", "-", state.model.name).strip("-")


def _carry_out(test: "SelfTest") -> "Transcript":
    from gpuloom.gpus.host.selftest.run import PARTS

    def say(text: str) -> None:
        typer.echo(text, err=True)

    with bar(f"self-test of GPU {test.gpu}", len(PARTS)) as done, interruptible(say, STOPPING) as on_session:
        return test.run(on_session, done)


def _tell(transcript: "Transcript", place: "Place", output: Output) -> None:
    where = place.write(transcript.to_json())
    rows = [part.summary for part in transcript.parts]
    if output is Output.json:
        told = None if where is None else str(where)
        print_json({"gpu": transcript.gpu, "stopped": transcript.stopped, "transcript": told, "parts": rows})
    else:
        emit(rows, output, f"self-test of GPU {transcript.gpu}")
    if where is None:
        typer.echo("the transcript could be written nowhere: make room and run the self-test again", err=True)
    else:
        typer.echo(f"the transcript is in {where}", err=True)
    if transcript.interrupted:
        raise typer.Exit(130)
    if transcript.failed or where is None:
        raise typer.Exit(1)
