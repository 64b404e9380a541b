"""`gpuloom schema`: the JSON Schema of work files and of plans of measurements, for editors and checks."""

from enum import StrEnum
from typing import Annotated

import typer


class Of(StrEnum):
    work = "work"
    measure = "measure"


def schema(
    of: Annotated[Of, typer.Argument(help="Of work files, or of the plans of gpuloom measure.")] = Of.work,
) -> None:
    """Print the JSON Schema of the YAML files that describe jobs and services, or what is to be measured.

    \b
    gpuloom schema > gpuloom.schema.json
    gpuloom schema measure > plan.schema.json
    """
    from gpuloom.cli.output import print_json

    if of is Of.measure:
        from gpuloom.measure.plan_file import json_schema
    else:
        from gpuloom.work.files import json_schema
    print_json(json_schema())
