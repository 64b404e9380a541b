"""`gpuloom schema`: the JSON Schema of work files, for editors and checks."""


def schema() -> None:
    """Print the JSON Schema of the YAML files that describe jobs and services.

    \b
    gpuloom schema > gpuloom.schema.json
    """
    from gpuloom.cli.output import print_json
    from gpuloom.work.files import json_schema

    print_json(json_schema())
