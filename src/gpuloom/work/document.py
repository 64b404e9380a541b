"""A YAML text together with the lines that its parts stand on, so that an error can name them.

Knows YAML, nothing of jobs. Imported only by `files`, when a file is read.
"""

from pathlib import Path
from typing import Any

import yaml

from gpuloom.errors import InputError
from gpuloom.work.source import shown

Loc = tuple[str | int, ...]
"""The way to a part: keys of mappings and indices of lists."""


class Document:
    """A mapping at the top, no key twice: anything else is an InputError."""

    def __init__(self, path: Path, text: str, expected: str) -> None:
        self.path = path
        self.data, root = _load(path, text, expected)
        if not isinstance(self.data, dict) or not isinstance(root, yaml.MappingNode):
            raise InputError(f"{path} is {shown(self.data)} at its top: expected {expected}")
        self._root = root

    def where(self, *loc: str | int) -> str:
        """'jobs.yaml: line 7, jobs[2].memory'."""
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{_plain(part)}" for part in loc).lstrip(".")
        return f"{self.path}: line {self._line(loc)}, {field}"

    def _line(self, loc: Loc) -> int:
        """The line of a part, or of the nearest part around it that exists."""
        node: yaml.Node = self._root
        line = node.start_mark.line
        for part in loc:
            found = _child(node, part)
            if found is None:
                break
            line, node = found
        return line + 1


def _load(path: Path, text: str, expected: str) -> tuple[Any, yaml.Node | None]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        root = loader.get_single_node()
        _check_keys(path, root)  # before construction, which writes the merged keys (<<) into the nodes
        return (None if root is None else loader.construct_document(root)), root
    except yaml.MarkedYAMLError as error:
        line = f": line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"{path}{line} is not YAML ({_short(error.problem)}): expected {expected}") from None
    except (
        yaml.YAMLError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        # Characters that YAML forbids, an impossible date, a number of thousands of digits, endless nesting.
        raise InputError(f"{path} is not YAML ({_short(str(error))}): expected {expected}") from None
    finally:
        loader.dispose()


def _check_keys(path: Path, root: yaml.Node | None) -> None:
    """YAML silently keeps the last of two equal keys: here a mistake. Looks as deep as a flat file goes."""
    mappings = [root]
    for _, value in root.value if isinstance(root, yaml.MappingNode) else []:
        if isinstance(value, yaml.SequenceNode):
            mappings += value.value
    for mapping in mappings:
        seen: set[str] = set()
        for key, _ in mapping.value if isinstance(mapping, yaml.MappingNode) else []:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                line = key.start_mark.line + 1
                raise InputError(
                    f"{path}: line {line} gives {shown(key.value)} a second time: expected each field once"
                )
            seen.add(str(key.value))


def _child(node: yaml.Node, part: str | int) -> tuple[int, yaml.Node] | None:
    """(line, node) of one part of a mapping (the line of its key) or list."""
    if isinstance(part, int):
        items = node.value[part : part + 1] if isinstance(node, yaml.SequenceNode) else []
        return (items[0].start_mark.line, items[0]) if items else None
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    # From the end: a key that was merged in stands before the mapping's own.
    return next(((key.start_mark.line, value) for key, value in reversed(pairs) if key.value == part), None)


def _plain(key: str) -> str:
    """A key as it stands if that can be printed."""
    return key if key.isidentifier() and len(key) <= 60 else shown(key)


def _short(problem: str | None) -> str:
    lines = ascii(problem or "").strip("'\"").split("\\n")
    return lines[0][:100] or "it cannot be parsed"
