"""Write the figures of inference models that gpuloom ships: `python benchmarks/make_service_figures.py --data DIR`.

Reads DIR/igniter (11-run profiles of four models on a V100, and 750 measured pairs): iGniter's coefficients and our
curves from the profiles, our constants from all the pairs. Prints where the file went; `--output -` prints the file
itself. The result depends on the data alone: a test compares it with the shipped file.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are small: threads would only burn CPU time

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from gpuloom.errors import InputError
from gpuloom.perf.sharing.fit import calibrate
from gpuloom.perf.sharing.igniter_fit import fit_igniter
from gpuloom.work.measured.service_figures import SHIPPED
from gpuloom.work.measured.service_pairs import read_solo_and_pairs
from gpuloom.work.measured.service_profiles import RUNS, read_service_profiles

DIGITS = 7
"""Significant ones: more than the measurements have."""


def make(data: Path) -> str:
    """The shipped file's text."""
    profiles = read_service_profiles(data / "igniter" / "profile_v100.jsonl")
    measured = read_solo_and_pairs(data / "igniter" / "solo_and_pairs_v100.jsonl")
    igniter, ours = fit_igniter(profiles).to_figures(), calibrate(profiles, measured.pairs).to_figures()
    content = {
        "about": "Inference models on a V100. Computed by benchmarks/make_service_figures.py; do not edit.",
        "gpu": "V100",
        "source": "profiles and measured pairs of icloud-ecnu/igniter (figures only)",
        "runs_per_model": RUNS,
        "hardware": igniter["hardware"],
        "services": {name: one | ours["services"][name] for name, one in igniter["services"].items()},
        "constants": ours["constants"],
    }
    return json.dumps(rounded(content), indent=1) + "\n"


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with igniter/")
    parser.add_argument("--output", default=str(SHIPPED["V100"]), help="file to write, or - for standard output")
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
    print(json.dumps({"written": arguments.output, "services": list(json.loads(text)["services"])}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
