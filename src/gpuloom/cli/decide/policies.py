"""`gpuloom policies`: what `--policy` accepts."""

from typing import Annotated

import typer

from gpuloom.cli.output import Output, emit


def policies(output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.table) -> None:
    """List the policies, what each does and what it is told beyond what it can observe.

    \b
    gpuloom policies
    """
    from gpuloom.policies.registry import describe_all

    emit([dict(row) for row in describe_all()], output, "Policies")
