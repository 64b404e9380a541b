"""The study of training on MIG slices, `examples/mig_study.yaml`: what gpuloom concludes from it, as JSON.

    python benchmarks/mig_study.py --part standin
    python benchmarks/mig_study.py --part cpu --state study --budget 4m      # again with 8m, 12m … : it goes on

standin  on the stand-in for an A100, where nothing is trained: programs wait as long as MISO's authors published for
         workloads that gain as the study's do (`LIKE` of examples/resnets.py). Only how long it takes may vary.
cpu      three ResNets in PyTorch, trained for real on a part of this machine's CPUs. The budget is of all sittings in
         the same state folder together. Needs PyTorch, and what `gpuloom measure --device cpu` needs.

Printed of each workload: step times and throughput of every arrangement with 90 % intervals, what did not run, every
verdict, and the choice for each goal.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]

from resnets import LIKE  # noqa: E402
from tests.standin.build import NoCompilerError, build  # noqa: E402
from tests.standin.hardware import Hardware  # noqa: E402

from cpu_shares import GPULOOM  # noqa: E402
from gpuloom.measure.figures import Figure, Interval, figures  # noqa: E402
from gpuloom.measure.measured import read_measured  # noqa: E402

PLAN = ROOT / "examples" / "mig_study.yaml"
TWICE = ("--repeat", "2", "--most", "2")
UNCUT = "A100-40GB+resets"


class FailedError(Exception):
    """A command did not do what it should; the sentence says which, and what it said."""


def gpuloom(words: Sequence[object], environment: Mapping[str, str]) -> dict[str, Any]:
    """Its JSON. The plan's commands are `python examples/resnets.py …`: of this Python, and from here."""
    path = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    command = [*GPULOOM, *map(str, words), "--output", "json"]
    done = subprocess.run(
        command, env={**environment, "PATH": path}, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise FailedError(f"gpuloom {words[0]}: exit code {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def standin(pace: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="study-") as folder:
        hardware = Hardware(build(), Path(folder))
        hardware.install(UNCUT)
        state = Path(folder) / "s"
        found = measured(state, ["--pace", pace, "--steps", 20, *TWICE], hardware.environment)
        return found | {"pace": pace, "waits_as": dict(LIKE)}


def on_cpu(state: Path, words: Sequence[object]) -> dict[str, Any]:
    return measured(state, ["--device", "cpu", *TWICE, *words], os.environ)


def measured(state: Path, words: Sequence[object], environment: Mapping[str, str]) -> dict[str, Any]:
    began_s = time.monotonic()
    ran = gpuloom(["measure", PLAN, "--state", state, "--memory", "none", *words], environment)
    seconds = time.monotonic() - began_s
    told = gpuloom(["recommend", state], environment)["workloads"]
    found = figures(read_measured(state).rows)
    return {
        "device": {name: ran["device"][name] for name in ("product", "model")},
        "stop": ran["stop"],
        "runs": ran["runs"],
        "spent_s": round(ran["spent_s"], 1),
        "this_sitting_s": round(seconds, 1),
        "noise": ran["noise"],
        "workloads": {
            name: {
                "arrangements": [arrangement(one) for one in found if one.seat.workload == name],
                "verdicts": [verdict["says"] for verdict in own["verdicts"]],
                "choices": {answer["goal"]: answer["choice"] for answer in own["answers"]},
            }
            for name, own in sorted(told.items())
        },
    }


def arrangement(figure: Figure) -> dict[str, object]:
    return {
        "arrangement": figure.arrangement,
        "runs": figure.repetitions,
        "step_ms": ends(figure.step_ms),
        "steps_per_s": ends(figure.steps_per_s),
        "mem_peak_mib": figure.mem_peak_mib and round(figure.mem_peak_mib),
        "host_cpus": figure.host_cpus and round(figure.host_cpus, 3),
        "outcomes": {outcome.value: count for outcome, count in figure.outcomes.items()},
    }


def ends(value: Interval | None) -> list[float] | None:
    """The figure and the ends of its interval, to five figures that count."""
    if value is None:
        return None
    return [float(f"{end:.5g}") for end in (value.value, value.low, value.high) if end is not None]


@contextmanager
def folder_of(named: Path | None) -> Iterator[Path]:
    if named is not None:
        yield named
        return
    with tempfile.TemporaryDirectory(prefix="study-") as folder:
        yield Path(folder) / "s"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=["standin", "cpu"], help="only this one")
    options.add_argument("--pace", type=float, default=10.0, help="of the stand-in: so many times as fast")
    options.add_argument("--state", type=Path, help="of the part cpu: where to go on; without it a new folder")
    options.add_argument("--budget", default="40m", help="of the part cpu, all sittings together")
    options.add_argument("--steps", type=int, default=30, help="of a run of the part cpu, at most")
    options.add_argument("--seconds", default="20s", help="likewise")
    options.add_argument("--output", choices=["json"], default="json")
    wish = options.parse_args()
    found: dict[str, Any] = {}
    try:
        if wish.part != "cpu":
            found["standin"] = standin(wish.pace)
        if wish.part != "standin":
            with folder_of(wish.state) as state:
                bounds = ("--steps", wish.steps, "--seconds", wish.seconds, "--budget", wish.budget)
                found["cpu"] = on_cpu(state, bounds)
    except (FailedError, NoCompilerError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
