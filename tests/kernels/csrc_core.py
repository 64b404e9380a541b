"""Where the core's sources are, and how the tests compile programs around it."""

from pathlib import Path

import gpuloom

CSRC = Path(gpuloom.__file__).parent / "kernels" / "csrc"
PROGRAMS = Path(__file__).parent / "csrc"
CORE = tuple(CSRC / name for name in ("slots.c", "gate.c", "learn.c", "region_file.c", "runtime.c"))
FLAGS = ("-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer", "-pthread")


def sanitized(sanitizer: str) -> list[str]:
    """Without builtins: a memset that the compiler writes out is hidden from the thread sanitizer."""
    return [] if sanitizer == "none" else [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-fno-builtin"]
