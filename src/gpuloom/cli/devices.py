"""The option that names devices which are not GPUs; the same wherever devices are used."""

from typing import Annotated

import typer

Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="cpu[:CORES][=PART%]",
        help="Instead of GPUs: this machine's CPU time (cpu, cpu:0-3, cpu=50%, 2xcpu). Repeatable.",
    ),
]
