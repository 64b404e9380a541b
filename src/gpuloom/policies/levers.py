"""Parts of a policy that can be turned off by its argument: `-migration,-telemetry` is the policy without these two."""

from collections.abc import Mapping
from typing import Any

from gpuloom.errors import InputError


def turned_off(policy: str, arg: str, levers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What changes in the policy's tuning when the levers that the argument names are off."""
    named = list(filter(None, arg.split(",")))
    for word in named:
        if word.removeprefix("-") not in levers or not word.startswith("-"):
            known = ", ".join(f"-{name}" for name in levers)
            raise InputError(f"policy {policy}:{arg}: {word!r} is none of its levers; accepted are {known}")
    changes: dict[str, Any] = {}
    for name in levers:  # in the order of the table: in which order they are named makes no difference
        changes |= levers[name] if f"-{name}" in named else {}
    return changes
