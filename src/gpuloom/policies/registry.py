"""Policies by name: `whole-fifo`, `static:3,2,2` (name:argument), or one's own as `path/to/file.py:Class[:arg]`."""

import importlib
import importlib.util
import sys
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import cast

from gpuloom.contract.policy import Policy
from gpuloom.errors import InputError
from gpuloom.gpus.cluster import Cluster
from gpuloom.work.model import Hints

# Modules are imported when their policy is asked for: the command line starts faster, and scipy stays out of the way.
POLICIES: dict[str, tuple[str, str]] = {
    "whole-fifo": ("whole", "WholeFifo"),
    "whole-sjf": ("whole", "WholeSjf"),
    "static": ("static", "Static"),
    "mps-only": ("mps_only", "MpsOnly"),
    "oracle": ("miso.oracle", "Oracle"),
    "miso-paper": ("miso.paper", "MisoPaper"),
    "miso": ("miso.policy", "Miso"),
    "tiresias": ("tiresias", "Tiresias"),
    "optimus": ("optimus", "Optimus"),
    "pollux": ("pollux.policy", "Pollux"),
    "ones": ("ones.policy", "Ones"),
    "ones-paper": ("ones.paper", "OnesPaper"),
}

WITH_LEVERS = {"miso", "ones"}
"""Whose parts can be turned off: `miso:-migration`."""
SPELLING = {"static": "static:3,2,2", "mps-only": "mps-only:2"}
"""How to write those that take an argument."""


def make_policy(name: str, cluster: Cluster, seed: int = 0) -> Policy:
    """A fresh policy. Its class is called with (cluster, seed, argument)."""
    head, _, arg = name.partition(":")
    if head.endswith(".py"):
        class_name, _, arg = arg.partition(":")
        kind = _from_file(Path(head), class_name)
        return _checked(kind, head, cluster, seed, arg)
    if head not in POLICIES:
        known = [*POLICIES, "best-static"]
        close = get_close_matches(head, known, 1)
        hint = f", did you mean {close[0]}" if close else ""
        raise InputError(f"policy {name!r} is unknown{hint}? Known: {', '.join(known)}, or path/to/file.py:Class")
    if arg and head not in SPELLING and head not in WITH_LEVERS:
        raise InputError(f"policy {name!r}: {head} takes no argument")
    module, kind_name = POLICIES[head]
    kind = getattr(importlib.import_module(f"gpuloom.policies.{module}"), kind_name)
    return cast(Policy, kind(cluster, seed, arg) if arg else kind(cluster, seed))


def _checked(kind: type, file: str, cluster: Cluster, seed: int, arg: str) -> Policy:
    """A user's policy; what is wrong with it is said before it is asked anything."""
    try:
        policy = kind(cluster, seed, arg)
    except TypeError as error:
        raise InputError(f"policy {file}: {kind.__name__}(cluster, seed, arg) fails: {error}") from error
    lacks = [name for name in ("when", "told", "decide") if not hasattr(policy, name)]
    if getattr(kind, "decide", None) is Policy.decide:
        lacks = ["decide"]
    if lacks:
        raise InputError(f"policy {file}: {kind.__name__} lacks {', '.join(lacks)}")
    unknown = set(policy.told) - {field.name for field in fields(Hints)}
    if unknown:
        raise InputError(f"policy {file}: told names {', '.join(sorted(unknown))}, which no hint is called")
    return cast(Policy, policy)


def describe_all() -> list[dict[str, str]]:
    """Name, what it does, and what it is told that no scheduler could observe."""
    rows = []
    for name, (module, kind_name) in POLICIES.items():
        kind = getattr(importlib.import_module(f"gpuloom.policies.{module}"), kind_name)
        told = ", ".join(sorted(kind.told)) or "nothing"
        rows.append({"policy": SPELLING.get(name, name), "what it does": _first_sentence(kind), "told": told})
    best = "Every static layout on the whole trace; the best of them in hindsight."
    rows.append({"policy": "best-static", "what it does": best, "told": "the future"})
    return rows


def _first_sentence(kind: type) -> str:
    text = " ".join((kind.__doc__ or sys.modules[kind.__module__].__doc__ or "").split())
    return text.split(". ")[0].rstrip(".") + "."


def _from_file(path: Path, class_name: str) -> type:
    if not class_name:
        raise InputError(f"policy {path}: name the class too, as {path}:ClassName")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError(f"policy {path}: no such file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"policy {path}: cannot be imported: {type(error).__name__}: {error}") from error
    kind = getattr(module, class_name, None)
    if not isinstance(kind, type):
        raise InputError(f"policy {path}: has no class {class_name}")
    return kind
