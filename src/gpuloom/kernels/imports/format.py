"""Kernel traces that users already have, as profiles: of the PyTorch profiler (JSON), of Nsight Systems (SQLite).

One run for each stream of a device. What an imported profile is good for, and what not: `trace` beside it.
"""

from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.kernels.imports.chrome import import_chrome
from gpuloom.kernels.imports.nsys import import_nsys
from gpuloom.kernels.profile import FORMAT, Profile

SQLITE, GZIP = b"SQLite format 3\x00", b"\x1f\x8b"


def import_profile(path: Path) -> Profile:
    """The kind of file is told by its content, not by its name. InputError if it is none that can be read."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}: expected a kernel trace") from None
    if head.startswith(SQLITE):
        return import_nsys(path)
    if head.startswith(GZIP) or head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"["):
        return import_chrome(path)
    if head.startswith(FORMAT.encode()):
        raise InputError(f"{path}: is a kernel profile already: expected a trace to import")
    raise InputError(
        f"{path}: is no kernel trace that can be read: expected a trace of the PyTorch profiler (JSON, also .gz) "
        "or an SQLite export of Nsight Systems (nsys export --type sqlite REPORT)"
    )
