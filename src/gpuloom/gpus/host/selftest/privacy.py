"""What a transcript must not tell: whose machine it is, which GPU, which processes, which folders.

What is hidden gets a name instead that is the same wherever it occurs (GPU-1, MIG-2, pid-3), in order of appearance.
"""

import os
import platform
import re
from collections.abc import Iterable, Mapping

UUID = re.compile(r"\b(MIG-GPU|MIG|GPU)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?:/\d+/\d+)?")
PATH = re.compile(r"(?<![\w./<])/(?:[^\s/:;,'\"()]+/)*[^\s/:;,'\"()]+/?")
PROCESS = re.compile(r"\bprocess (\d+)(?: \(.{1,15}\))?")
"""As `driver.Process` writes one; the kernel keeps 15 characters of a program's name."""
HOLDER = re.compile(r"(?!running )\b\S+ \(process (\d+)\)")
"""As `around.holders` writes one; that a manager is running, which is known by its name, may be told."""
EVERYBODY = frozenset({"root", "localhost", "nobody", "user", "host"})
"""Names that tell nothing, and that our own sentences use."""


def names_here(environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """What this machine and the person at it are called."""
    node = platform.node()
    users = (environment.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "HOSTNAME"))
    return frozenset({node, node.partition(".")[0], *users}) - EVERYBODY - {""}


class Pseudonyms:
    def __init__(self, names: Iterable[str] = ()) -> None:
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        longest_first = sorted(names, key=len, reverse=True)
        self._names = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in longest_first) or r"(?!)")

    def pid(self, pid: int) -> str:
        return self._pseudonym("pid", str(pid))

    def driver(self, text: str) -> str:
        """Of what the driver says: it knows UUIDs, and nothing of this machine's names."""
        return UUID.sub(lambda found: self._pseudonym(found[1][:3], found[0]), text)

    def words(self, text: str) -> str:
        """Of an answer made of words: process ids that have been met stand there alone."""
        return " ".join(self._known.get(f"pid {word}", word) for word in self.sentence(text).split())

    def sentence(self, text: str) -> str:
        text = self.driver(text)
        for pattern in (HOLDER, PROCESS):
            text = pattern.sub(lambda found: f"process {self.pid(int(found[1]))}", text)
        return self._names.sub("(a name)", PATH.sub("(a path)", text))

    def _pseudonym(self, kind: str, hidden: str) -> str:
        key = f"{kind} {hidden}"
        if key not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[key] = f"{kind}-{self._counts[kind]}"
        return self._known[key]
