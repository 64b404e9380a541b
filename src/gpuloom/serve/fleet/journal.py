"""What happened to the servers: kept for the status, written to the state folder, told to whoever listens."""

import time
from collections import deque
from collections.abc import Callable

from gpuloom.serve.state import State
from gpuloom.serve.triton.server import Server

Event = dict[str, object]


class Journal:
    def __init__(self, state: State, on_event: Callable[[Event], None] = lambda _: None) -> None:
        self.events: deque[Event] = deque(maxlen=100)
        """The latest."""
        self._state, self._on_event = state, on_event

    def note(self, what: str, server: Server, detail: str) -> None:
        event: Event = {
            "at_unix_s": round(time.time(), 3),
            "event": what,
            "service": server.spec.service,
            "server": server.spec.name,
            "level": server.spec.level.value,
            "share_pct": server.spec.grant.share_pct,
            "pid": server.pid,
            "detail": detail,
        }
        self.events.append(event)
        self._state.write_event(event)
        self._on_event(event)
