"""What a Triton server tells of itself at /metrics, read as far as it is used."""

import re
from dataclasses import dataclass

_LINE = re.compile(r"^nv_inference_(\w+)\{[^}]*\} ([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the server was started."""

    inferences: float
    executions: float
    queue_us: float
    pending: float

    def since(self, before: "Counters | None") -> "Counters":
        """What was added; all of it if there was nothing before, or if that was another server's."""
        if before is None or before.inferences > self.inferences:
            return self
        return Counters(
            self.inferences - before.inferences,
            self.executions - before.executions,
            self.queue_us - before.queue_us,
            self.pending,
        )

    @property
    def mean_batch(self) -> float | None:
        return self.inferences / self.executions if self.executions else None

    @property
    def mean_queue_ms(self) -> float | None:
        return self.queue_us / self.inferences / 1000.0 if self.inferences else None


def parse(text: str) -> Counters:
    """The counters of a server with one model; 0 where it says nothing yet."""
    totals: dict[str, float] = {}
    for name, value in _LINE.findall(text):
        totals[name] = totals.get(name, 0.0) + float(value)
    return Counters(
        totals.get("count", 0.0),
        totals.get("exec_count", 0.0),
        totals.get("queue_duration_us", 0.0),
        totals.get("pending_request_count", 0.0),
    )
