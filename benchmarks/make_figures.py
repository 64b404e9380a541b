"""Write the figures that gpuloom ships, from the public measurements: `python benchmarks/make_figures.py --data DIR`.

Reads DIR/miso (batch latencies and the 100 job templates) and DIR/pollux/philly.csv (job lengths). Prints where the
file went; `--output -` prints the file itself. The result depends on the data alone: a test compares it with the
shipped file.
"""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import NormalDist, linear_regression

from gpuloom.errors import InputError
from gpuloom.work.measured.figures import SHIPPED, Durations, figures_from_csv
from gpuloom.work.traces import read_trace
from gpuloom.work.traces.miso import read_templates

MISO = "boringlee24/socc22-miso (MIT)"
PHILLY = "msr-fiddle/philly-traces (CC-BY-4.0), as sampled in petuum/adaptdl's OSDI'21 artifact"


def make(data: Path) -> str:
    """The shipped file's text."""
    workloads = figures_from_csv(data / "miso" / "mig_batch_latency.csv").workloads
    templates = read_templates(data / "miso")
    mix = Counter(figures.name for figures, _ in templates)
    philly = read_trace(data / "pollux" / "philly.csv", "philly")
    content = {
        "about": "Training workloads on A100-40GB slices. Computed by benchmarks/make_figures.py; do not edit.",
        "gpu": "A100-40GB",
        "source": f"batch latencies, job templates and restart times of {MISO}",
        "workloads": {
            name: {
                "model": figures.model,
                "batch": figures.batch,
                "batch_s": figures.batch_s,
                "speeds": {profile: round(speed, 4) for profile, speed in figures.speeds.items()},
                "mem_mib": figures.mem_mib,
                "restart_s": figures.restart_s,
            }
            for name, figures in workloads.items()
        },
        "mix": {name: mix[name] for name in workloads if name in mix},
        "durations": {
            "miso": asdict(fit([batches * figures.batch_s for figures, batches in templates], MISO)),
            "philly": asdict(fit([entry.length_s or 0.0 for entry in philly], PHILLY)),
        },
    }
    return json.dumps(content, indent=1) + "\n"


def fit(lengths_s: Sequence[float], source: str) -> Durations:
    """A log-normal by regression of log length on the normal quantile (Q-Q plot), clamped to the data's range.

    Lengths at the floor are left out of the regression: MISO raised every shorter job to the shortest length, so those
    say only how many there are, which the clamp reproduces.
    """
    ordered = sorted(lengths_s)
    n, low_s, high_s = len(ordered), ordered[0], ordered[-1]
    above = [(i, length_s) for i, length_s in enumerate(ordered) if length_s > 1.001 * low_s]
    normal = NormalDist()
    quantiles = [normal.inv_cdf((i + 0.5) / n) for i, _ in above]
    sigma, mu = linear_regression(quantiles, [math.log(length_s) for _, length_s in above])
    ks = max(abs(normal.cdf((math.log(length_s) - mu) / sigma) - (i + 1) / n) for i, length_s in above)
    return Durations(source, round(mu, 4), round(sigma, 4), round(low_s, 1), round(high_s, 1), round(ks, 3))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with miso/ and pollux/philly.csv")
    parser.add_argument("--output", default=str(SHIPPED), help="file to write, or - for standard output")
    arguments = parser.parse_args()
    try:
        text = make(arguments.data)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.output == "-":
        print(text, end="")
        return 0
    Path(arguments.output).write_text(text, encoding="utf-8")
    count = len(json.loads(text)["workloads"])
    print(json.dumps({"written": arguments.output, "workloads": count}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
