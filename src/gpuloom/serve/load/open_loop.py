"""Requests at times that were decided before, and how long each took from the moment it was due.

The loop is open: nothing waits for an answer, so a server that stalls meets the requests that would have come, and each
is measured from when it should have been sent, not from when it could be (no coordinated omission).
"""

import asyncio
import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass

from gpuloom.perf.arrays import Floats
from gpuloom.serve.gateway.grpc_client import Channel
from gpuloom.serve.gateway.http_client import LostError, Peer
from gpuloom.serve.gateway.http_message import post
from gpuloom.serve.latencies import percentile
from gpuloom.serve.load.request import Body

PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9)
STANDIN_BODY = Body(b'{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[0]}]}')

_MOST_SAID = 200


@dataclass(frozen=True, slots=True)
class Target:
    """One service to be asked."""

    name: str
    host: str
    port: int
    path: str
    due_s: Floats
    """On the clock, from the start."""
    body: Body = STANDIN_BODY
    slo_ms: float | None = None
    dilate: float = 1.0
    grpc: bool = False
    """Then the path is a method's, and the body its message."""


@dataclass(frozen=True, slots=True)
class Result:
    """In the plan's milliseconds: what the clock said, divided by the dilation."""

    name: str
    slo_ms: float | None
    requests: int
    failed: int
    """Answered, but not with 200 or OK."""
    lost: int
    """Not answered; over gRPC also what is answered with "unavailable", which looks the same."""
    latencies_ms: tuple[float, ...]
    """Ascending; of those that were answered with 200 or OK."""
    sent_late_ms: tuple[float, ...]
    """Ascending: how late the sender itself was. Counted in the latencies."""
    seconds: float
    """On the clock, until the last answer."""
    why: str | None = None
    """What the first one that failed or was lost met with."""

    @property
    def p99_ms(self) -> float | None:
        return percentile(self.latencies_ms, 99.0)

    @property
    def above(self) -> int:
        """Longer than the SLO, or never answered."""
        limit = float("inf") if self.slo_ms is None else self.slo_ms
        return sum(latency > limit for latency in self.latencies_ms) + self.failed + self.lost

    @property
    def kept(self) -> bool:
        """Whether the promise was kept: 99 of 100 within the SLO, none lost."""
        return not self.failed and not self.lost and self.above <= 0.01 * self.requests

    def row(self) -> dict[str, object]:
        percentiles = {f"p{percent:g}_ms": percentile(self.latencies_ms, percent) for percent in PERCENTS}
        return {
            "service": self.name,
            "requests": self.requests,
            "failed": self.failed,
            "lost": self.lost,
            **percentiles,
            "max_ms": self.latencies_ms[-1] if self.latencies_ms else None,
            "slo_ms": self.slo_ms,
            "above_slo": self.above if self.slo_ms is not None else None,
            "kept": self.kept,
            "sent_late_p99_ms": percentile(self.sent_late_ms, 99.0),
        }


async def drive(targets: Sequence[Target], timeout_s: float = 60.0) -> list[Result]:
    """All targets at once, from a common start."""
    gc.collect()
    gc.freeze()
    start_s = time.monotonic() + 0.1
    return list(await asyncio.gather(*(_drive(target, start_s, timeout_s) for target in targets)))


class _Tally:
    __slots__ = ("failed", "late_s", "latencies_s", "why")

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self.late_s: list[float] = []
        self.failed = 0
        self.why: str | None = None


async def _drive(target: Target, start_s: float, timeout_s: float) -> Result:
    client, tally = _client(target), _Tally()
    under_way: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    for offset_s in target.due_s.tolist():
        due_s = start_s + offset_s
        wait_s = due_s - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        tally.late_s.append(max(0.0, time.monotonic() - due_s))
        task = loop.create_task(_ask(client, due_s, tally, timeout_s))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    if under_way:
        await asyncio.wait(under_way)
    client.close()
    scale = 1000.0 / target.dilate
    return Result(
        target.name,
        target.slo_ms,
        len(target.due_s),
        tally.failed,
        len(target.due_s) - tally.failed - len(tally.latencies_s),
        tuple(sorted(latency_s * scale for latency_s in tally.latencies_s)),
        tuple(sorted(late_s * scale for late_s in tally.late_s)),
        time.monotonic() - start_s,
        tally.why,
    )


class _Http:
    def __init__(self, target: Target) -> None:
        self._peer, self._request = Peer(target.host, target.port), self._post(target)

    @staticmethod
    def _post(target: Target) -> bytes:
        return post(target.path, target.body.content, target.body.json_bytes)

    async def ask(self) -> tuple[int, str]:
        """The status, and what was said."""
        answer = await self._peer.ask(self._request)
        return answer.status, answer.body[:_MOST_SAID].decode("utf-8", "replace")

    def close(self) -> None:
        self._peer.close()


class _Grpc:
    def __init__(self, target: Target) -> None:
        self._channel, self._target = Channel(target.host, target.port), target

    async def ask(self) -> tuple[int, str]:
        reply = await self._channel.ask(self._target.path, self._target.body.content)
        return reply.status, reply.details[:_MOST_SAID]

    def close(self) -> None:
        self._channel.close()


def _client(target: Target) -> _Http | _Grpc:
    return _Grpc(target) if target.grpc else _Http(target)


async def _ask(client: _Http | _Grpc, due_s: float, tally: _Tally, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            status, said = await client.ask()
    except (LostError, TimeoutError) as error:
        tally.why = tally.why or str(error) or f"no answer within {timeout_s:g} s"
        return
    if status == 200:
        tally.latencies_s.append(time.monotonic() - due_s)
    else:
        tally.failed += 1
        tally.why = tally.why or f"answered with {status}: {said}"
