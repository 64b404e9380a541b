"""Write the table of p99 latencies that the planner reads.

    OPENBLAS_NUM_THREADS=1 python benchmarks/make_queue_table.py

Latency of the batching queue with Poisson arrivals and no queue delay, in units of a full batch's time, by max batch,
floor part and load (`perf.queueing.poisson_table` says what they are), from `perf.queueing.latency`: half a minute.
Then asks the table at random points between its own, and writes how far it is off beside it: the planner adds the one
end as a margin, its lower bound the other. Prints where the file went.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are small: threads would only burn CPU time

import argparse
import json
from pathlib import Path

import numpy as np

from gpuloom.perf.queueing.latency import Batching, BatchTimes, Poisson, latency_of
from gpuloom.perf.queueing.poisson_table import PoissonTable
from gpuloom.work.measured.queue_figures import SHIPPED

PERCENT = 99.0
BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
FLOOR_PARTS = (0.0, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
LOADS = (
    *(0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225, 0.25, 0.275, 0.3),
    *(0.325, 0.35, 0.375, 0.4, 0.425, 0.45, 0.475, 0.5, 0.525, 0.55, 0.575, 0.6, 0.625, 0.65, 0.675, 0.7, 0.725, 0.75),
    *(0.775, 0.8, 0.82, 0.84, 0.86, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98),
)
CHECKED = 20_000
DIGITS = 5


def p99(batch: int, floor_part: float, load: float) -> float:
    """In units of a full batch's time."""
    times = BatchTimes.of(floor_part + (1.0 - floor_part) * np.arange(1, batch + 1) / batch)
    return latency_of(times, Batching(batch), Poisson(1000.0 * load * batch)).percentile_ms(PERCENT)


def make(checked: int, generator: np.random.Generator) -> str:
    values = [[[p99(batch, part, load) for load in LOADS] for part in FLOOR_PARTS] for batch in BATCHES]
    figures = {
        "about": "p99 latency of a batching queue. Computed by benchmarks/make_queue_table.py; do not edit.",
        "percent": PERCENT,
        "batches": list(BATCHES),
        "floor_parts": list(FLOOR_PARTS),
        "loads": list(LOADS),
        "p99": [[[float(f"{value:.{DIGITS}g}") for value in row] for row in table] for table in values],
        "above": 0.0,
        "below": 0.0,
    }
    table = PoissonTable.from_figures(figures)
    batch = generator.choice(BATCHES, checked)
    part, load = generator.uniform(0.0, 1.0, checked), generator.uniform(0.05, LOADS[-1], checked)
    exact = np.array([p99(int(b), p, r) for b, p, r in zip(batch, part, load, strict=True)])
    error = np.log(table.ratio(batch.astype(float), part, load) / exact)
    figures["above"], figures["below"] = round(float(error.max()), 4), round(float(-error.min()), 4)
    figures["checked"] = checked
    return json.dumps(figures, separators=(",", ":")).replace("]],", "]],\n") + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=SHIPPED)
    parser.add_argument("--checked", type=int, default=CHECKED, help="random points to ask")
    arguments = parser.parse_args()
    text = make(arguments.checked, np.random.default_rng(1))
    arguments.output.write_text(text, encoding="utf-8")
    figures = json.loads(text)
    print(json.dumps({"written": str(arguments.output)} | {name: figures[name] for name in ("above", "below")}))


if __name__ == "__main__":
    main()
