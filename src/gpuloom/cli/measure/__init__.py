"""Verbs that measure. `measure` is a verb of its own and has another one below it, `measure service`."""

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from gpuloom.cli.measure.measure import measure
from gpuloom.cli.measure.service import service

COMMAND = "command"
"""What follows `measure` where that is no verb: a plan, or the options of a command."""


class _Unnamed(typer.Context):
    @property
    def command_path(self) -> str:
        return super().command_path.strip()


class _Command(TyperCommand):
    context_class = _Unnamed


class _CommandUnlessNamed(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and args[0] in self.commands and args[0] != COMMAND
        return super().parse_args(ctx, args if named else [COMMAND, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == COMMAND else name), command, rest  # as usage lines have it


measuring = typer.Typer(
    cls=_CommandUnlessNamed, help="Measure a command on every slice and share, or models (service)."
)
measuring.command(COMMAND, hidden=True, cls=_Command)(measure)
measuring.command()(service)
