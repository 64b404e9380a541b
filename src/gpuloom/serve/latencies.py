"""The latest latencies of a server or a service, and what they say: percentiles, and how many were too long."""

from collections import deque
from collections.abc import Sequence
from math import ceil, floor

MOST = 5_000
"""More than a percentile needs; what is older is dropped."""
BUCKET_S = 0.1
"""Those that were too long are counted in steps of this length: they are asked for again and again."""


class Window:
    """Latencies of the last `span_s` seconds. Knows no clock: whoever adds says when, and never goes back."""

    __slots__ = ("_buckets", "_kept", "limit_ms", "span_s")

    def __init__(self, span_s: float, limit_ms: float) -> None:
        self.span_s, self.limit_ms = span_s, limit_ms
        self._kept: deque[tuple[float, float]] = deque(maxlen=MOST)
        self._buckets: deque[list[int]] = deque()
        """Number of the bucket, requests in it, those of them above the limit."""

    def add(self, at_s: float, latency_ms: float) -> None:
        self._kept.append((at_s, latency_ms))
        bucket = floor(at_s / BUCKET_S)
        if not self._buckets or self._buckets[-1][0] != bucket:
            self._buckets.append([bucket, 0, 0])
            while self._buckets[0][0] < bucket - self.span_s / BUCKET_S:
                self._buckets.popleft()
        self._buckets[-1][1] += 1
        self._buckets[-1][2] += latency_ms > self.limit_ms

    def clear(self) -> None:
        self._kept.clear()
        self._buckets.clear()

    def latencies_ms(self, now_s: float) -> list[float]:
        """Ascending; the latest `MOST` of the span."""
        return sorted(latency_ms for at_s, latency_ms in self._kept if at_s >= now_s - self.span_s)

    def counts(self, now_s: float, span_s: float) -> tuple[int, int]:
        """Requests answered within the last `span_s` (and up to a bucket more), and those of them above the limit."""
        first = floor((now_s - span_s) / BUCKET_S)
        total = above = 0
        for bucket, requests, late in reversed(self._buckets):
            if bucket < first:
                break
            total += requests
            above += late
        return total, above


def percentile(ascending: Sequence[float], percent: float) -> float | None:
    """The shortest time within which that share was answered (nearest rank); None of nothing."""
    if not ascending:
        return None
    return ascending[max(ceil(len(ascending) * percent / 100.0 - 1e-9), 1) - 1]
