"""The house as docs/architecture.md draws it: what a pure room may not do, and how large a room may grow.

import-linter holds who knows whom; it cannot see who opens a file, looks at a clock or throws dice. This reads the
syntax trees.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuloom

ROOT = Path(gpuloom.__file__).parent
PURE = ("gpus", "work/model.py", "contract", "perf", "policies", "engine", "provision")
IMPURE = ("gpus/host",)
DOORS = {
    "policies/registry.py": "loads the file of a user's own policy",
    "provision/shipped.py": "hands out the figures that ship with the package",
    "provision/strategies.py": "imports a planner when it is asked for",
}
"""In pure rooms, the only modules that read or import anything by name, and what."""

ALLOWED = {
    "abc", "base64", "bisect", "collections", "dataclasses", "difflib", "enum", "functools", "gpuloom", "heapq", "html",
    "itertools", "json", "math", "numpy", "pydantic", "pydantic_core", "re", "scipy", "types", "typing", "yaml",
    "zlib",
}  # fmt: skip
"""What pure rooms may import: none of it opens, looks at a clock or throws dice by itself, but for what is below."""
OPENERS = {"open", "input", "print", "eval", "exec", "compile", "__import__", "breakpoint"}
METHODS = {
    "open",
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "mkdir",
    "unlink",
    "touch",
    "iterdir",
    "exists",
}
NUMPY = {
    "load",
    "save",
    "savez",
    "savez_compressed",
    "loadtxt",
    "savetxt",
    "genfromtxt",
    "fromfile",
    "memmap",
    "random",
}
FROM_WORK = {"all_families", "family_of", "check_id", "did_you_mean", "shown"}
"""Functions of `work` that read nothing; its types begin with a capital letter."""
MOST_MODULES, MOST_LINES = 16, 60


def modules(*below: str) -> list[Path]:
    files = [
        path for name in below for path in ([ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("*.py"))
    ]
    return sorted(path for path in files if not any(path.is_relative_to(ROOT / name) for name in IMPURE))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def what_it_touches(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and reason of all in a module that a pure room may not do."""
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    if not _may_import(alias.name):
                        yield node.lineno, f"imports {alias.name}"
            case ast.ImportFrom():
                for alias in node.names:
                    if not _may_import(node.module or "", alias.name):
                        yield node.lineno, f"imports {alias.name} from {node.module}"
            case ast.Name(id=name) if name in OPENERS:
                yield node.lineno, f"uses {name}"
            case ast.Attribute(attr=name) if name in METHODS:
                yield node.lineno, f"uses {ast.unparse(node)}"
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name) if name in NUMPY - {"random"}:
                yield node.lineno, f"uses {ast.unparse(node)}"
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"), attr=name):
                if not (name == "default_rng" or name[0].isupper()):
                    yield node.lineno, f"throws the dice of everybody: {ast.unparse(node)}"
            case ast.Call() if ast.unparse(node.func).startswith(("np.random.", "numpy.random.")):
                if not node.args or ast.unparse(node.args[0]) == "None":
                    yield node.lineno, "throws dice without a seed"


def _may_import(module: str, name: str | None = None) -> bool:
    top, _, rest = module.partition(".")
    if top not in ALLOWED:
        return False
    if top in ("numpy", "scipy"):
        return (module in ("numpy", "numpy.typing") and name not in NUMPY) or (
            module.startswith("scipy.") and rest != "io"
        )
    if module == "gpuloom.work" or module.startswith("gpuloom.work."):
        return name is not None and module != "gpuloom.work" and (name[0].isupper() or name in FROM_WORK)
    return True


@pytest.mark.parametrize("path", modules(*PURE), ids=name_of)
def test_a_pure_room_opens_nothing_and_throws_no_dice_of_its_own(path: Path) -> None:
    touched = [f"{line}: {what}" for line, what in what_it_touches(ast.parse(path.read_text(encoding="utf-8")))]
    if name_of(path) in DOORS:
        assert touched, "it reads nothing: it need not be a door"
    else:
        assert not touched, "\n".join(touched)


@pytest.mark.parametrize(
    "code",
    [
        "import time",
        "from datetime import datetime",
        "import os.path",
        "import importlib",
        "import sqlite3",
        "from random import Random",
        "from numpy import random",
        "from numpy import fromfile",
        "from numpy.random import default_rng",
        "import numpy.random as dice",
        "from scipy.io import loadmat",
        "def f(path):\n    return path.read_text()",
        "def f(path):\n    with open(path) as file:\n        return file",
        "from functools import partial\nread = partial(open)",
        "clock = __import__('time')",
        "import numpy as np\nx = np.random.default_rng()",
        "import numpy as np\nx = np.random.default_rng(None)",
        "import numpy as np\nx = np.random.rand(3)",
        "import numpy as np\ndef f(path):\n    return np.load(path)",
        "def f():\n    from gpuloom.work.source import read_json as told\n    return told('x')",
        "from gpuloom.work import source",
        "import gpuloom.work.source",
        "from gpuloom.work.measured.figures import figures_from_csv",
    ],
)
def test_what_a_pure_room_may_not_do_is_seen(code: str) -> None:
    assert list(what_it_touches(ast.parse(code)))


def test_a_generator_that_is_passed_in_is_allowed() -> None:
    code = "import numpy as np\ndef f(dice: np.random.Generator, seed: int):\n    return np.random.default_rng(seed)"
    assert not list(what_it_touches(ast.parse(code)))


def test_no_room_is_a_pile() -> None:
    rooms = {folder for folder in [ROOT, *ROOT.rglob("*")] if folder.is_dir()}
    sizes = {name_of(room): len([path for path in room.glob("*.py") if path.name != "__init__.py"]) for room in rooms}
    assert {room: size for room, size in sizes.items() if size > MOST_MODULES} == {}


def test_functions_fit_on_a_screen() -> None:
    long = {
        f"{name_of(path)}:{node.name}": length
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) >= MOST_LINES
    }
    assert long == {}
