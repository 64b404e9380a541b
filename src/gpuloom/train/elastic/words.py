"""What is told to people: on standard error, which may be closed or full. Nobody dies of that."""

import contextlib
import sys


def tell(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed by the reader, closed here, None
        print(sentence.rstrip(), file=sys.stderr, flush=True)


def flush() -> None:
    """Whatever was printed so far, before a fork would print it twice."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
