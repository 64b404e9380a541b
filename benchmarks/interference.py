"""How well the latency of a model is predicted that shares a GPU with another, both under MPS with a share each.

    python benchmarks/interference.py --profile ../shared/data/igniter/profile_v100.jsonl \
        --solo-and-pairs ../shared/data/igniter/solo_and_pairs_v100.jsonl [--a100 ../shared/data/gpulet_a100]

Each model is left out in turn: constants are calibrated on pairs without it (and on profiles of the models in those),
and judged on both sides of all pairs with it. A model's own parameters come from its 11 profiling runs. Two questions:

- from_profile: the pair's latency from the 11 runs alone, end to end. Needs only the `interference` lines.
- from_measured_solo: the same with the measured solo table as the profile, so that only the interference is predicted:
  iGniter's and gpu-lets' slowdown times the measured latency alone; ours with the table in place of its curve; and
  latency_only, which has seen nothing but latencies: that of `perf.sharing.latency_only`, for profiles that a load
  generator measures. Its three terms were chosen with these pairs in view, its constants are of the training part.

Errors are (predicted - measured) / measured. Standard errors are of the mean error, with the pairs of two models as one
cluster: those were measured in one session, and sessions differ by about 5 us a kernel, which no profile shows.

What that does not leave out is the form of "ours": it was chosen with all 750 pairs in view. `nested` tells what the
choice is worth, from the profile, among the 16 forms of `perf.sharing.fit.FORMS`, again on models left out:
- chosen_inside: the training part chooses the form, by leaving out one of its own three models at a time;
- averaged: nobody chooses, the prediction is the geometric mean of all 16;
- forms: each as if it had been given, which flatters the best of them.
Beside each, how much larger its mean error is than the shipped form's, with a standard error over the same clusters.
There are six clusters, and an inner training part is a single one: whatever is less than two standard errors is noise.

On the A100 there are solo tables and L2 use, but no power, clocks, kernels or co-located copies: neither iGniter's
model nor our full one can be built; ours is `launch_bound.py` beside this script, which the product does not use, and
from_measured_solo is the only question.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are small: threads would only burn CPU time

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from gpuloom.errors import InputError
from gpuloom.perf.arrays import Floats
from gpuloom.perf.sharing.alone_table import AloneTable
from gpuloom.perf.sharing.fit import FORMS, SHIPPED, Form, calibrate, fit_form
from gpuloom.perf.sharing.gpulets import GpuletsService, fit_gpulets, measured_services, profiled_services
from gpuloom.perf.sharing.igniter import IgniterModel
from gpuloom.perf.sharing.igniter_fit import fit_igniter
from gpuloom.perf.sharing.interference import Crowd, InterferenceModel, Latencies
from gpuloom.perf.sharing.latency_only import fit_latency_only, services_of
from gpuloom.perf.sharing.pairs import Pairs, containing, models_of, without
from gpuloom.work.measured.service_pairs import MeasuredServices, PairRow, read_gpulets_folder, read_solo_and_pairs
from gpuloom.work.measured.service_profiles import RUNS, Profiles, read_service_profiles

Rows = Sequence[PairRow]
Fit = Callable[[Rows], InterferenceModel]
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Errors:
    """On the rows of one test."""

    relative: Floats
    clusters: tuple[tuple[str, str], ...]
    """Which two models each row is a pair of."""
    held: Floats | None
    """1 where the interval holds the measured latency; None if the model states no interval."""

    @property
    def mean_error(self) -> float:
        return float(np.abs(self.relative).mean())

    def cluster_means(self) -> list[float]:
        size = np.abs(self.relative)
        return [float(size[[one == pair for one in self.clusters]].mean()) for pair in sorted(set(self.clusters))]

    def summary(self) -> dict[str, object]:
        size = np.abs(self.relative)
        return {
            "rows": len(size),
            "mean_error": self.mean_error,
            "p95_error": float(np.quantile(size, 0.95)),
            "bias": float(self.relative.mean()),
            "standard_error": standard_error(self.cluster_means()),
            "interval_coverage": None if self.held is None else float(self.held.mean()),
        }


def standard_error(means: Sequence[float]) -> float | None:
    return stdev(means) / len(means) ** 0.5 if len(means) > 1 else None


def together(parts: Sequence[Errors]) -> Errors:
    held = [part.held for part in parts if part.held is not None]
    return Errors(
        np.concatenate([part.relative for part in parts]),
        tuple(pair for part in parts for pair in part.clusters),
        np.concatenate(held) if len(held) == len(parts) else None,
    )


def judge(model: InterferenceModel, rows: Rows) -> Errors:
    pairs = Pairs.of(rows, model.names)
    found = model.latencies(pairs.crowd)
    total, low, high = (part[:, 0] for part in (found.total_ms, found.low_ms, found.high_ms))
    held = ((low <= pairs.measured_ms) & (pairs.measured_ms <= high)).astype(float) if (high > low).any() else None
    clusters = tuple((min(pair), max(pair)) for pair in ((row.model, row.neighbour) for row in rows))
    return Errors(total / pairs.measured_ms - 1.0, clusters, held)


def can_be_left_out(rows: Rows) -> list[str]:
    return [model for model in sorted(models_of(rows)) if without(rows, model)]


def by_left_out_model(rows: Rows, fit: Fit) -> dict[str, Errors]:
    models = can_be_left_out(rows)
    if not models:
        raise InputError("every pair contains every model, so none can be left out: expected pairs of three or more")
    return {model: judge(fit(without(rows, model)), containing(rows, model)) for model in models}


def leave_one_model_out(rows: Rows, fits: Mapping[str, Fit]) -> dict[str, object]:
    """Of each fit: over all, and by the model that was left out."""
    results: dict[str, object] = {}
    for name, fit in fits.items():
        parts = by_left_out_model(rows, fit)
        results[name] = together(list(parts.values())).summary() | {
            "by_left_out_model": {model: errors.summary() for model, errors in parts.items()}
        }
    return results


@dataclass(frozen=True, slots=True)
class Averaged:
    """The geometric mean of what several models say."""

    models: Sequence[InterferenceModel]

    @property
    def names(self) -> tuple[str, ...]:
        return self.models[0].names

    def latencies(self, crowd: Crowd) -> Latencies:
        total = np.exp(np.mean([np.log(model.latencies(crowd).total_ms) for model in self.models], axis=0))
        none = np.zeros_like(total)
        return Latencies(none, total, none, total, total)


def choose(training: Rows, candidates: Mapping[Form, Fit]) -> Form:
    """The one with the least mean error on models of the training part that are left out in turn."""

    def inner_error(form: Form) -> float:
        return together(list(by_left_out_model(training, candidates[form]).values())).mean_error

    return min(candidates, key=inner_error)


def nested(rows: Rows, candidates: Mapping[Form, Fit]) -> dict[str, object] | None:
    """The shipped form beside one that the training part chooses, and beside the average that nobody chooses.

    None where a training part has too few models to leave out one more.
    """
    if not all(can_be_left_out(without(rows, model)) for model in models_of(rows)):
        return None
    chosen = {model: choose(without(rows, model), candidates) for model in can_be_left_out(rows)}
    by_choice = [
        judge(candidates[form](without(rows, model)), containing(rows, model)) for model, form in chosen.items()
    ]

    def outer(fit: Fit) -> Errors:
        return together(list(by_left_out_model(rows, fit).values()))

    shipped = outer(candidates[SHIPPED])

    def beside_shipped(errors: Errors) -> dict[str, object]:
        more = [mine - its for mine, its in zip(errors.cluster_means(), shipped.cluster_means(), strict=True)]
        return errors.summary() | {"more_than_shipped": mean(more), "more_standard_error": standard_error(more)}

    average = outer(lambda training: Averaged([fit(training) for fit in candidates.values()]))
    return {
        "shipped": shipped.summary(),
        "chosen_inside": beside_shipped(together(by_choice))
        | {"chosen": {m: asdict(form) for m, form in chosen.items()}},
        "averaged": beside_shipped(average),
        "forms": [asdict(form) | beside_shipped(outer(fit)) for form, fit in candidates.items()],
    }


def candidate_forms(profiles: Profiles) -> dict[Form, Fit]:
    @cache  # a training part comes up again and again: as one's own, and inside two others
    def fitted(form: Form, training: tuple[PairRow, ...]) -> InterferenceModel:
        return fit_form(form, profiles, training)

    def fit(form: Form) -> Fit:
        return lambda training: fitted(form, tuple(training))

    return {form: fit(form) for form in FORMS}


@dataclass(frozen=True, slots=True)
class OnMeasuredSolo:
    """A model's slowdown times the latency that was measured alone."""

    model: IgniterModel
    tables: Mapping[str, AloneTable]

    @property
    def names(self) -> tuple[str, ...]:
        return self.model.names

    def latencies(self, crowd: Crowd) -> Latencies:
        slowdown, solo = self.model.latencies(crowd).total_ms, np.ones_like(crowd.batch)
        for seat in range(crowd.batch.shape[1]):
            batch, share = crowd.batch[:, seat], crowd.share_pct[:, seat]
            alone = Crowd(crowd.model[:, [seat]], batch[:, None], share[:, None], crowd.device)
            slowdown[:, seat] /= self.model.latencies(alone).total_ms[:, 0]
            for name, table in self.tables.items():
                mine = crowd.model[:, seat] == self.names.index(name)
                solo[mine, seat] = table(batch[mine], share[mine])
        total, none = solo * slowdown, np.zeros_like(solo)
        return Latencies(none, total, none, total, total)


def latency_only(measured: MeasuredServices) -> Fit:
    """What a profile from latencies alone is planned with: solo tables and pairs, no counter of anything."""
    models = models_of(measured.pairs)
    services = services_of({name: solo for name, solo in measured.solo_ms.items() if name in models}, {})
    return lambda rows: fit_latency_only(services, rows)


def gpulets(services: Mapping[str, GpuletsService]) -> Fit:
    def fit(rows: Rows) -> InterferenceModel:
        pairs = Pairs.of(rows, tuple(services))
        return fit_gpulets(services, pairs.crowd, pairs.measured_ms)

    return fit


def v100(profiles: Profiles, measured: MeasuredServices) -> dict[str, object]:
    igniter, rows = fit_igniter(profiles), measured.pairs
    seen = sorted(models_of(rows) & profiles.services.keys())
    fits: dict[str, Fit] = {
        "ours": lambda training: calibrate(profiles, training),
        "igniter": lambda _: igniter,
        "gpulets": gpulets(profiled_services(igniter, seen)),
    }
    from_profile = leave_one_model_out(rows, fits)
    constants = calibrate(profiles, rows).constants
    results: dict[str, object] = {
        "pairs": len(rows) // 2,
        "runs_per_model": RUNS,
        "from_profile": from_profile,
        "nested": nested(rows, candidate_forms(profiles)),
        "constants_on_all_pairs": {
            "sharpness": constants.sharpness,
            "throttle_start_w": constants.throttle_start_w,
        },
    }
    if models_of(rows) <= measured.solo_ms.keys() & measured.l2_pct.keys():
        results["from_measured_solo"] = on_measured_solo(profiles, igniter, measured)
        results["published_figures"] = published(igniter, measured)
    return results


def on_measured_solo(profiles: Profiles, igniter: IgniterModel, measured: MeasuredServices) -> dict[str, object]:
    tables = {name: AloneTable.of(solo) for name, solo in measured.solo_ms.items() if name in profiles.services}
    fits: dict[str, Fit] = {
        "ours": lambda training: calibrate(profiles, training, tables),
        "igniter": lambda _: OnMeasuredSolo(igniter, tables),
        "gpulets": gpulets(measured_services(measured)),
        "latency_only": latency_only(measured),
    }
    runs = {name: table.points for name, table in tables.items()}
    return leave_one_model_out(measured.pairs, fits) | {"runs_of_the_table": runs}


def published(igniter: IgniterModel, measured: MeasuredServices) -> dict[str, object]:
    """What the fact sheet's figures are closest to (igniter 3.64 %, gpulets 2.71 %): no model left out."""
    rows = measured.pairs
    fold = np.random.default_rng(0).permutation(len(rows) // 2).repeat(2) % FOLDS
    fit = gpulets(measured_services(measured))
    parts = []
    for one in range(FOLDS):
        training = [row for row, f in zip(rows, fold, strict=True) if f != one]
        parts.append(judge(fit(training), [row for row, f in zip(rows, fold, strict=True) if f == one]))
    return {
        "igniter_from_profile": judge(igniter, rows).summary(),
        f"gpulets_from_measured_solo_{FOLDS}_random_folds": together(parts).summary(),
    }


def a100(measured: MeasuredServices) -> dict[str, object]:
    from launch_bound import calibrate_launch_bound  # beside this script; only these pairs need it

    services = {name: one for name, one in measured_services(measured).items() if name in models_of(measured.pairs)}
    fits: dict[str, Fit] = {
        "ours": lambda training: calibrate_launch_bound(services, training),
        "gpulets": gpulets(services),
        "latency_only": latency_only(measured),
    }
    return {
        "rows": len(measured.pairs),
        "models": sorted(services),
        "from_measured_solo": leave_one_model_out(measured.pairs, fits) | {"igniter": None},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", type=Path, required=True, help="11-run profiles, JSON lines")
    parser.add_argument("--solo-and-pairs", type=Path, required=True, help="measured pairs, JSON lines")
    parser.add_argument("--a100", type=Path, help="folder of gpu-lets' measurements")
    parser.add_argument("--output", choices=["json"], default="json")
    arguments = parser.parse_args()
    try:
        results = v100(read_service_profiles(arguments.profile), read_solo_and_pairs(arguments.solo_and_pairs))
        if arguments.a100 is not None:
            results["a100"] = a100(read_gpulets_folder(arguments.a100))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
