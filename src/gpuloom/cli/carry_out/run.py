"""`gpuloom run`: real commands on this machine's GPUs, under the same engine and policies as the simulator."""

import errno
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuloom.cli.devices import Devices
from gpuloom.cli.interrupts import interruptible
from gpuloom.cli.output import Output, emit, print_json
from gpuloom.errors import InputError

if TYPE_CHECKING:
    from gpuloom.live.run import Result, Wish
    from gpuloom.live.store import Store

STOPPING = (
    "stopping the jobs with a checkpoint; again kills them",
    "killing the jobs",
    "leaving; whoever does not die is found again by --resume",
)
Jobs = Annotated[Path | None, typer.Argument(metavar="[JOBS]", help="A work file with commands; see docs/run-jobs.md.")]
State = Annotated[Path, typer.Option("--state", help="Folder for the log, checkpoints and output of the jobs.")]
Resume = Annotated[bool, typer.Option("--resume", help="Only go on with the run in --state; JOBS is not needed then.")]
Gpus = Annotated[str | None, typer.Option("--gpus", metavar="0,1", help="GPUs of this host. Without it: all.")]
Pace = Annotated[float, typer.Option("--pace", min=1e-3, max=1e6, help="Seconds that pass in one, for rehearsals.")]
Times = Annotated[
    list[str] | None,
    typer.Option(
        "--timing", help="NAME=SECONDS, as in docs/run-jobs.md: grace_s, resize_s, resume_cost_s, … Repeatable."
    ),
]
Report = Annotated[Path | None, typer.Option("--report", help="Write a self-contained HTML page at the end.")]
Memory = Annotated[
    Path | None,
    typer.Option(
        "--memory",
        metavar="FILE|none",
        help="What earlier runs saw: read at the start, added to. [this machine's]",
        show_default=False,
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="On a terminal: a line an event instead of the live table.")]


def run(
    jobs: Jobs = None,
    policy: Annotated[str, typer.Option("--policy", help="A name from `gpuloom policies`.")] = "miso",
    state: State = Path("gpuloom-run"),
    resume: Resume = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="For policies that throw dice.")] = 0,
    gpus: Gpus = None,
    device: Devices = None,
    pace: Pace = 1.0,
    timing: Times = None,
    report: Report = None,
    memory: Memory = None,
    plain: Plain = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the end.")] = Output.table,
) -> None:
    """Run a list of commands on this machine's GPUs: queue, probe, cut, launch, checkpoint, move, until all have ended.

    \b
    gpuloom run jobs.yaml --state /var/lib/gpuloom/today
    gpuloom run jobs.yaml --policy whole-fifo --gpus 0 --timing grace_s=120
    gpuloom run --resume --state /var/lib/gpuloom/today --report today.html
    gpuloom run examples/cpu_jobs.yaml --device cpu --pace 5

    Needs root, as cutting does; with --device cpu, cgroups that this user may write. If it is killed, the jobs go on;
    the same command picks them up. Ctrl-C, or a terminal that closes, stops the jobs with a checkpoint, a second one
    kills them; either way the GPUs are left as they were found. Exit code 1 means that a job was given up, could not be
    placed, or that a GPU is not as it was found; 130 that it was stopped so.
    """
    from gpuloom.cli.carry_out.run_page import write_page
    from gpuloom.cli.inputs import check_writable
    from gpuloom.gpus.host.driver import StepFailed
    from gpuloom.gpus.host.nvml import NoDriver
    from gpuloom.gpus.host.ownership import Refused
    from gpuloom.live.store import Store
    from gpuloom.live.timing import Timing, with_changes

    with_changes(Timing(), timing or ())  # what is wrong with them is said before anything is opened
    check_writable(report, read=jobs)
    if report is not None and report.resolve().is_relative_to(state.resolve()):
        raise InputError(f"{report}: is in the folder of the run; name a file outside of {state}")
    here = working_dir()
    asked = None if resume else _wish(jobs, policy, seed, pace, gpus, tuple(device or ()))
    if resume and not (state / "run.json").exists():
        raise InputError(f"{state}: holds no run to go on with; expected the --state of an earlier one")
    try:
        with Store(state) as store:
            result = _carry_out(asked, store, here, memory, timing or (), plain)
    except (NoDriver, Refused, StepFailed) as reason:
        typer.echo(f"gpuloom run: {reason}", err=True)
        raise typer.Exit(1) from None
    if result.had_ended:
        typer.echo(f"the run in {state} had ended: nothing was run; name another --state for a new one", err=True)
    with _though_nobody_listens(result.interrupted):
        _emit(result, output)
        sys.stdout.flush()
    if report is not None:
        write_page(report, store, result.noise)
    _leave(result)


def _carry_out(
    asked: "Wish | None", store: "Store", here: str, memory: Path | None, timing: Sequence[str], plain: bool
) -> "Result":
    """What is asked for, or the run that the store holds; `here` is where its jobs run."""
    from gpuloom.cli.carry_out.run_lines import Words
    from gpuloom.cli.carry_out.run_table import shown
    from gpuloom.cli.threads import as_given_for_others
    from gpuloom.gpus.host.cutter import cutter_of
    from gpuloom.live.body import Settings
    from gpuloom.live.probes.by_time import by_time
    from gpuloom.live.probes.predict import trained
    from gpuloom.live.run import run_jobs
    from gpuloom.live.timing import Timing, begun_timing, with_changes

    as_given_for_others()
    before, wish = store.run(), asked or _as_before(store)
    as_begun = None if before is None else before.memory
    wish = replace(wish, memory=memory_named(memory) if before is None or memory is not None else as_begun)
    times = with_changes(Timing() if before is None else begun_timing(before.timing), timing)
    predict = by_time if wish.devices else trained
    with (
        cutter_of(wish.devices, whole=True) as cutter,
        shown(plain, Words(wish.pace, cutter.noun)) as show,
        interruptible(show.later, STOPPING) as on_body,
    ):
        settings = Settings(times, here, predict, show.event, show.notice, show.look)
        return run_jobs(wish, store, cutter, settings, on_body)


def _wish(path: Path | None, policy: str, seed: int, pace: float, gpus: str | None, devices: tuple[str, ...]) -> "Wish":
    from gpuloom.live.run import Wish, check_runnable
    from gpuloom.live.users import work_owner
    from gpuloom.work.files import read_owned_work

    if path is None:
        raise InputError("JOBS is missing: expected a work file with commands, or --resume with the --state of a run")
    entries, services, owner = read_owned_work(path)
    if services:
        raise InputError(f"{path}: service {services[0].id}: this runner runs jobs only")
    jobs = tuple(entry.job for entry in entries)
    check_runnable(jobs, path)
    owner_uid = work_owner(path, owner, os.geteuid())
    return Wish(jobs, policy, seed, pace, None if gpus is None else _numbers(gpus), owner_uid, devices)


def memory_named(word: Path | None) -> str | None:
    """As `--memory` says it: a file, none, or, without it, this machine's."""
    from gpuloom.live.memory.file import usual_memory

    if word == Path("none"):
        return None
    if word is not None and re.fullmatch(r"[0-9.]+[KMGT]?i?B?", str(word)):
        raise InputError(f"--memory {word}: expected a file to keep what was seen in, or none; device memory is --mem")
    return str((usual_memory() if word is None else word).absolute())


def working_dir() -> str:
    """Where what is started will run; it is written down as text."""
    try:
        here = str(Path.cwd())
        here.encode()
    except FileNotFoundError:
        raise InputError("the working directory does not exist any more: run gpuloom in one that does") from None
    except UnicodeEncodeError:
        raise InputError("the name of the working directory is not UTF-8: run gpuloom in another") from None
    return here


def _as_before(store: "Store") -> "Wish":
    from gpuloom.live.run import Wish

    before = store.run()
    assert before is not None, "the caller has looked"
    return Wish(
        before.jobs, before.policy, before.seed, before.pace, owner_uid=before.owner_uid, devices=before.devices
    )


def _numbers(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in words) or len({*words}) != len(words):
        raise InputError(f"--gpus {text}: expected different numbers of GPUs such as 0,1")
    return tuple(map(int, words))


@contextmanager
def _though_nobody_listens(interrupted: bool) -> Iterator[None]:
    """A terminal that was closed has interrupted the run: that it cannot show the end is no error of its own."""
    try:
        yield
    except OSError as error:
        if not interrupted or error.errno != errno.EIO:
            raise
        nobody = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):  # what was not written would be tried again at the exit, and change its code
            os.dup2(nobody, number)
        os.close(nobody)


def _leave(result: "Result") -> None:
    if result.interrupted:
        raise typer.Exit(130)
    if not result.all_done:
        raise typer.Exit(1)


def _emit(result: "Result", output: Output) -> None:
    rows: list[dict[str, object]] = [
        {"job": outcome.job_id, "state": outcome.state, "ended_s": outcome.ended_s, "cause": outcome.cause}
        for outcome in result.outcomes
    ]
    if output is Output.json:
        found = {"interrupted": result.interrupted, "not_as_found": list(result.not_as_found)}
        print_json({"jobs": rows, **found, "noise": None if result.noise is None else asdict(result.noise)})
    else:
        emit(rows, output)
    if output is Output.table and result.noise is not None:
        typer.echo(f"on a CPU device: {result.noise}")
    for problem in result.not_as_found:
        typer.echo(problem, err=True)
