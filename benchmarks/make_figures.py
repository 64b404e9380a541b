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
from statistics import NormalDist, geometric_mean, linear_regression

from gpuloom.errors import InputError
from gpuloom.work.measured.figures import SHIPPED, Durations, figures_from_csv
from gpuloom.work.measured.mps_mixes import MeasuredMix, read_mixes
from gpuloom.work.measured.share_figures import SHIPPED as SHIPPED_SHARES
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


def make_shares(data: Path) -> str:
    """The shipped file of speeds at shares: geometric means over the mixes that have one job."""
    speeds = alone_at_shares(read_mixes(data / "miso" / "mps_mixes.csv"))
    content = {
        "about": "Speed alone at shares of an A100-40GB's SMs, of 100 %. Computed by benchmarks/make_figures.py.",
        "source": f"co-running jobs of {MISO}",
        "speeds": {name: {share: round(speed, 4) for share, speed in of.items()} for name, of in speeds.items()},
    }
    return json.dumps(content, indent=1) + "\n"


def alone_at_shares(mixes: Sequence[MeasuredMix]) -> dict[str, dict[str, float]]:
    """By workload: speed at 14 and 50 % relative to 100 %."""
    found: dict[str, list[tuple[float, float]]] = {}
    for mix in mixes:
        if len(mix.jobs) == 1:
            at_100, at_50, at_14 = mix.jobs[0].mps
            found.setdefault(mix.jobs[0].workload, []).append((at_100 / at_14, at_100 / at_50))
    return {
        name: {"14": geometric_mean(seventh for seventh, _ in rows), "50": geometric_mean(half for _, half in rows)}
        for name, rows in sorted(found.items())
    }


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
    parser.add_argument("--shares", action="store_true", help="the speeds at shares instead, of miso/mps_mixes.csv")
    parser.add_argument("--output", help="file to write instead of the shipped one, or - for standard output")
    arguments = parser.parse_args()
    try:
        text = (make_shares if arguments.shares else make)(arguments.data)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.output == "-":
        print(text, end="")
        return 0
    path = arguments.output or str(SHIPPED_SHARES if arguments.shares else SHIPPED)
    Path(path).write_text(text, encoding="utf-8")
    count = len(json.loads(text)["speeds" if arguments.shares else "workloads"])
    print(json.dumps({"written": path, "workloads": count}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
