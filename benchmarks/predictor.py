"""How well the slice predictor does on mixes it has not seen: mean absolute errors, and what its 90 % intervals hold.

    python benchmarks/predictor.py --train ../shared/data/miso/mps_mixes.csv [--test OTHER.csv]

Without --test the file is split by mix into five folds, each predicted by what the other four trained (mae_real). Then
each model family is left out in turn: mixes that contain it are not trained on, and its jobs in them are predicted; the
mean is over families (mae_family_out). With --test all of --train is trained on, and the other file is predicted; a mix
that is in both files is taken out of the training. Only real jobs count, never the gauges ("dummy"). Hyper-parameters:
the smoothness of the trend is chosen anew in every training, by leaving out one more of its own families; the recipe of
the networks is fixed in `perf.slices.net`, by --choose-recipe, which looks at the training part of the first fold
alone. Takes some minutes on one core. The same seed gives the same figures, but for "timing".
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are small: threads would only burn CPU time

import argparse
import json
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Bools
from gpuloom.perf.slices.errors import Errors, judge, r2, small_slice_fit
from gpuloom.perf.slices.intervals import SLICES
from gpuloom.perf.slices.net import Recipe
from gpuloom.perf.slices.predictor import SlicePredictor, relative_latencies, speeds_from, trend_outputs
from gpuloom.perf.slices.table import Table, probe_of
from gpuloom.perf.slices.training import train, train_trend
from gpuloom.work.measured.figures import load_figures
from gpuloom.work.measured.mps_mixes import MeasuredMix, read_mixes
from gpuloom.work.measured.predictor_weights import load_weights

FOLDS = 5
FIGURES = load_figures().workloads
Mixes = Sequence[MeasuredMix]


def split(mixes: Mixes, folds: int, seed: int) -> list[tuple[Mixes, Mixes]]:
    """(train, test) pairs, by mix."""
    fold = np.random.default_rng(seed).permutation(len(mixes)) % folds
    return [
        (
            [mix for mix, f in zip(mixes, fold, strict=True) if f != one],
            [mix for mix, f in zip(mixes, fold, strict=True) if f == one],
        )
        for one in range(folds)
    ]


def known_families(pairs: Sequence[tuple[Mixes, Mixes]], seed: int) -> dict[str, object]:
    """Networks and trend, on other mixes of families that were trained on."""
    told, bare, untold = [], [], []
    for at, (training, test) in enumerate(pairs):
        print(f"training {at + 1} of {len(pairs)}", file=sys.stderr, flush=True)
        predictor = train(training, FIGURES, np.random.default_rng([seed, at]))
        told.append(judge(predictor, test, FIGURES))
        bare.append(judge(predictor, test, FIGURES, use_gauges=False))
        untold.append(judge(predictor, test, FIGURES, tell_family=False))
    every = together(told)
    by_fold = [fold.mae for fold in told]
    return {
        "mae_real": every.mae,
        "mae_real_stderr": stdev(by_fold) / len(by_fold) ** 0.5 if len(by_fold) > 1 else None,
        "interval_coverage": every.coverage,
        "split_by_mix": described(every)
        | {
            "mae_by_jobs_in_mix": {
                str(size): float(every.latency[np.array(every.sizes) == size].mean())
                for size in sorted(set(every.sizes))
            },
            "without_gauge": short(together(bare)),
            "family_not_told": short(together(untold)),
        },
    }


def unknown_families(training: Mixes, test: Mixes) -> dict[str, object]:
    """The trend, on families that it has never seen."""
    gauged: dict[str, Errors] = {}
    bare: dict[str, Errors] = {}
    exact: list[float] = []
    table = Table.of(test, FIGURES)
    for at, family in enumerate(table.families):
        predictor = train_trend(training, FIGURES, without_family=family)
        gauged[family] = judge(predictor, test, FIGURES, only_family=family)
        bare[family] = judge(predictor, test, FIGURES, only_family=family, use_gauges=False)
        exact.append(error_of_exact_solo(predictor, table, table.family == at))
    return {
        "mae_family_out": fmean(errors.mae for errors in gauged.values()),
        "interval_coverage_family_out": fmean(errors.coverage for errors in gauged.values()),
        "family_out": described(together(list(gauged.values())))
        | {
            "mae_if_solo_slowdown_were_exact": fmean(exact),
            "by_family": {
                family: short(errors)
                | {"coverage_by_slice": {name: row.get("coverage") for name, row in by_slice(errors).items()}}
                for family, errors in gauged.items()
            },
            "without_gauge": {
                "mae": fmean(errors.mae for errors in bare.values()),
                "coverage": fmean(errors.coverage for errors in bare.values()),
            },
        },
    }


def error_of_exact_solo(predictor: SlicePredictor, table: Table, mine: Bools) -> float:
    """What is left if the crowd were undone without error: a bound for any trend like ours."""
    solo = table.means.solo[table.workload][mine]
    guess = relative_latencies(speeds_from(trend_outputs(predictor.solo, solo), predictor.small))
    return float(np.nanmean(np.abs(guess - relative_latencies(table.speeds[mine]))))


def together(parts: Sequence[Errors]) -> Errors:
    return Errors(
        tuple(name for part in parts for name in part.workloads),
        tuple(size for part in parts for size in part.sizes),
        *(
            np.concatenate([getattr(part, field) for part in parts])
            for field in ("latency", "predicted", "truth", "held")
        ),
    )


def by_slice(errors: Errors) -> dict[str, dict[str, float]]:
    """Of speeds: mean absolute error, R² and coverage."""
    return {f"{slices}g": on_slice(errors, column) for column, slices in enumerate(SLICES)}


def on_slice(errors: Errors, column: int) -> dict[str, float]:
    known = np.isfinite(errors.truth[:, column])
    off = (errors.predicted - errors.truth)[known, column]
    if not known.any():
        return {"jobs": 0}
    return {
        "jobs": len(off),
        "mae_speed": float(np.abs(off).mean()),
        "r2": r2(errors.predicted[:, column], errors.truth[:, column]),
        "coverage": float(errors.held[known, column].mean()),
    }


def short(errors: Errors) -> dict[str, float]:
    return {"mae": errors.mae, "coverage": errors.coverage}


def described(errors: Errors) -> dict[str, object]:
    mae = dict(zip(("7g", "4g", "3g"), map(float, errors.latency.mean(axis=0)), strict=True))
    return {"jobs": len(errors.workloads), "mae_latency": mae, "speeds": by_slice(errors)}


def predict_the_mean(pairs: Sequence[tuple[Mixes, Mixes]]) -> float:
    """What knowing nothing costs."""
    off = []
    for training, test in pairs:
        mean = np.mean([job.mig for mix in training for job in mix.jobs], axis=0)
        off += [np.abs(np.array(job.mig) - mean) for mix in test for job in mix.jobs]
    return float(np.mean(off))


def choose_recipe(mixes: Mixes, seed: int) -> dict[str, object]:
    """One network each, on inner folds of the training part of the first fold."""
    inner = split(split(mixes, FOLDS, seed)[0][0], FOLDS, seed + 1)[:2]
    rows = []
    for width, epochs, decay in product((32, 40), (60, 100), (0.003, 0.03)):
        recipe = Recipe(width=width, epochs=epochs, decay=decay)
        mae = [
            judge(train(training, FIGURES, np.random.default_rng([seed, at]), recipe=recipe, members=1), test, FIGURES)
            for at, (training, test) in enumerate(inner)
        ]
        rows.append({"width": width, "epochs": epochs, "decay": decay, "mae": together(mae).mae})
        print(rows[-1], file=sys.stderr, flush=True)
    return {"recipes": rows, "best": min(rows, key=lambda row: row["mae"])}


def timing(mixes: Mixes) -> dict[str, float]:
    """Of the shipped weights, on this machine: loading them, and predicting a mix of seven."""
    began = time.perf_counter()
    predictor = SlicePredictor.from_arrays(load_weights().arrays)
    load_ms = (time.perf_counter() - began) * 1e3
    jobs = [probe_of(job) for job in max(mixes, key=lambda mix: len(mix.jobs)).jobs]
    began = time.perf_counter()
    for _ in range(200):
        predictor.predict(jobs)
    return {"load_ms": load_ms, "predict_ms": (time.perf_counter() - began) / 200 * 1e3}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True, help="CSV of measured mixes")
    parser.add_argument("--test", type=Path, help="another one; without it, --train is split by mix")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--choose-recipe", action="store_true", help="compare recipes of the networks on inner folds")
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    try:
        mixes = read_mixes(args.train)
        if args.choose_recipe:
            print(json.dumps(choose_recipe(mixes, args.seed), indent=2))
            return 0
        test = read_mixes(args.test) if args.test else mixes
        measured = {(mix.jobs, mix.gauges) for mix in test}
        fresh = [mix for mix in mixes if (mix.jobs, mix.gauges) not in measured]
        pairs = [(fresh, test)] if args.test else split(mixes, FOLDS, args.seed)
        results = (
            {"mixes": len(mixes), "mixes_in_both": len(mixes) - len(fresh) if args.test else None}
            | known_families(pairs, args.seed)
            | unknown_families(fresh if args.test else mixes, test)
            | {
                "small_slices": small_slice_fit(mixes, FIGURES),
                "predict_the_mean": predict_the_mean(pairs),
                "timing": timing(test),
            }
        )
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
