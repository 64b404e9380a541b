"""Quantities over simulated time in bounded memory: the means of at most a thousand or so equal stretches."""

from collections.abc import Sequence

BUCKETS = 1024


class Curves:
    """Integrates step functions into buckets; when time outgrows them, neighbours merge and each covers twice as much.

    All quantities change together, so one walk over the buckets serves them all.
    """

    __slots__ = ("_position_s", "_sums", "start_s", "totals", "width_s")

    def __init__(self, quantities: int, start_s: float, width_s: float = 1.0) -> None:
        self.start_s = start_s
        self.width_s = width_s
        self.totals = [0.0] * quantities
        """The whole integrals, in units times seconds."""
        self._position_s = 0.0
        self._sums: list[list[float]] = [[0.0] * quantities]

    def advance(self, to_s: float, values: Sequence[float]) -> None:
        """From where the last call ended until `to_s` the quantities had these values."""
        last_s, position_s = to_s - self.start_s, self._position_s
        while last_s > self.width_s * BUCKETS:
            self._merge()
        width_s, sums, totals = self.width_s, self._sums, self.totals
        while position_s < last_s:
            edge_s = len(sums) * width_s
            until_s = last_s if last_s < edge_s else edge_s
            bucket = sums[-1]
            for quantity, value in enumerate(values):
                if value:
                    area = value * (until_s - position_s)
                    bucket[quantity] += area
                    totals[quantity] += area
            position_s = until_s
            if position_s >= edge_s:
                sums.append([0.0] * len(totals))
        self._position_s = position_s

    def _merge(self) -> None:
        merged = [[a + b for a, b in zip(*pair, strict=True)] for pair in zip(*[iter(self._sums)] * 2, strict=False)]
        self._sums = [*merged, *self._sums[len(merged) * 2 :]]
        self.width_s *= 2

    def points(self, quantity: int) -> list[tuple[float, float]]:
        """(start of the stretch in seconds, mean of the quantity over it)."""
        points = []
        for bucket, sums in enumerate(self._sums):
            begin_s = bucket * self.width_s
            covered_s = min(self.width_s, self._position_s - begin_s)
            if covered_s > 0:
                points.append((self.start_s + begin_s, sums[quantity] / covered_s))
        return points
