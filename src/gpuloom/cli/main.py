"""The `gpuloom` command: its verbs, and the one place where errors become sentences and exit codes.

Exit codes: 0 fine, 1 the answer is no, 2 wrong usage or wrong input, 130 stopped with Ctrl-C.
"""

import os
import sys
from typing import Annotated

import typer

from gpuloom import __version__
from gpuloom.cli.carry_out import kernels, layout, serve
from gpuloom.cli.carry_out.load import load
from gpuloom.cli.carry_out.run import run
from gpuloom.cli.decide.compare import compare
from gpuloom.cli.decide.demo import demo
from gpuloom.cli.decide.policies import policies
from gpuloom.cli.decide.provision import provision
from gpuloom.cli.decide.schema import schema
from gpuloom.cli.decide.simulate import simulate
from gpuloom.cli.measure import measuring
from gpuloom.cli.measure.recommend import recommend
from gpuloom.cli.measure.train_predictor import train_predictor
from gpuloom.cli.output import harmless
from gpuloom.cli.threads import one_for_us
from gpuloom.cli.watch import log
from gpuloom.cli.watch.doctor import doctor
from gpuloom.cli.watch.explain import explain
from gpuloom.cli.watch.gpus import gpus
from gpuloom.errors import InputError

one_for_us()

app = typer.Typer(
    help="Share GPUs at every time scale: decide, prove the decision on measured data, explain it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
DECIDE, MEASURE, CARRY_OUT, WATCH = "Decide", "Measure", "Carry out", "Watch"
"""As the help groups the verbs, and as their folders are called."""
app.command(rich_help_panel=DECIDE)(demo)
app.command(rich_help_panel=DECIDE)(simulate)
app.command(rich_help_panel=DECIDE)(compare)
app.command(rich_help_panel=DECIDE)(policies)
app.command(rich_help_panel=DECIDE)(schema)
app.command(rich_help_panel=DECIDE)(provision)
app.add_typer(measuring, name="measure", rich_help_panel=MEASURE)
app.command(rich_help_panel=MEASURE)(recommend)
app.command("train-predictor", rich_help_panel=MEASURE)(train_predictor)
app.add_typer(layout.app, name="layout", rich_help_panel=CARRY_OUT)
app.command(rich_help_panel=CARRY_OUT)(run)
app.add_typer(serve.app, name="serve", rich_help_panel=CARRY_OUT)
app.command(rich_help_panel=CARRY_OUT)(load)
app.add_typer(kernels.app, name="kernels", rich_help_panel=CARRY_OUT)
app.command(rich_help_panel=WATCH)(explain)
app.add_typer(log.app, name="log", rich_help_panel=WATCH)
app.command(rich_help_panel=WATCH)(gpus)
app.command(rich_help_panel=WATCH)(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpuloom {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Share GPUs at every time scale: decide, prove the decision on measured data, explain it."""


def _fill_closed_descriptors() -> None:
    """Whoever started us may have closed them: the next file that is opened must not become our standard output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115


def main(arguments: list[str] | None = None) -> None:
    """Run one command; ends with its exit code."""
    _fill_closed_descriptors()
    try:
        app(args=arguments)
    except InputError as error:
        typer.echo(f"gpuloom: {harmless(str(error))}", err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(f"gpuloom: {error.filename or 'output'}: {error.strerror or error}", err=True)
        sys.exit(1)
