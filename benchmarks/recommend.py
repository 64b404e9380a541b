"""How good a choice is after a part of the exhaustive runs: our explorer, every fixed rule, and chance.

    python benchmarks/recommend.py --data ../shared/data/miso

Every run is seen with noise (lognormal, 3 %, a new one for each seed). Regret is what the choice costs against the true
best, in per cent: of the work an hour; of the speed or the part of the device that is lost (one copy: the smallest
slice within 5 % of the fastest; a deadline that is missed costs a whole device); of the summed relative speeds of a
set. A fixed rule runs the same places for every workload and takes the best of what it saw; all of its size are tried,
and the best of them in hindsight is beside ours. `fixed places, our belief` runs the same places for everybody too, but
chooses as we do. `with a margin`: it allows for noise, by 1.645 standard deviations (a deadline has to be kept with so
much to spare, a slice may be within 5 % of the fastest with so much less). The belief about a workload is never learned
from its own family of models. Its constants were chosen on the families of TUNING_HALF (`--choose` repeats that);
figures are given for these, for the others, and for all.

Seeds of sets. 1 to 10: constants were tried on them. 101 to 120: reported before, seen before a constant was added.
201 to 300: chosen beforehand, and seen once, with the rule as it was then. How to plan was then tried on sets of the
families of TUNING_HALF alone, drawn otherwise. 301 to 400: chosen beforehand for the rule as it is, and seen once.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are small: threads would only burn CPU time

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import exp, inf, isfinite, log
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import find
from gpuloom.measure.explore.belief import Belief
from gpuloom.measure.explore.goals import NEAR, Among, Deadline, Goal, MostWork, OneCopy
from gpuloom.measure.explore.next_run import choice, next_run
from gpuloom.measure.explore.opening import Stranger, opening, strangers
from gpuloom.measure.explore.places import Place, shares_of, slices_of
from gpuloom.measure.explore.prior import (
    Knobs,
    Prior,
    learn_without,
    scenarios,
    workload_row,
)  # fmt: skip
from gpuloom.measure.explore.set_runs import MISFIT, cautious_speeds, next_of_set, think
from gpuloom.measure.sets import scores
from gpuloom.perf.arrays import Floats
from gpuloom.work.measured.figures import WorkloadFigures, figures_from_csv
from gpuloom.work.measured.mps_mixes import read_mixes
from make_figures import alone_at_shares

NOISE = 0.03
BUDGETS_PCT = (20, 40, 60, 80, 100)
TUNING_HALF = frozenset({"bert", "deepspeech2", "gnn", "resnet"})
DEADLINES = (1.05, 6.0)
"""Of the step time on the whole device; drawn evenly by their log."""
SET_SIZES = (2, 3, 4, 5)
MODEL = find("a100")
SLICES = slices_of(MODEL)
SHARES = shares_of(MODEL, (14.0, 50.0))
PLACES = (*SLICES, *SHARES)
WHOLE = len(SLICES) - 1


@dataclass(frozen=True)
class World:
    workloads: Sequence[WorkloadFigures]
    shares: Mapping[str, Mapping[str, float]]
    priors: Mapping[str, Prior]
    """Over PLACES, learned without this family."""
    truth: Floats
    """Step ms of each workload on PLACES."""

    def others(self, family: str, places: Sequence[Place]) -> list[Stranger]:
        return strangers([figures for figures in self.workloads if figures.model != family], self.shares, places)


@dataclass(frozen=True)
class Question:
    """What is asked, what may be run, and the opening for each family."""

    goal: Goal
    places: tuple[int, ...]
    """Of PLACES."""


def read_world(folder: Path, knobs: Knobs) -> World:
    workloads = list(figures_from_csv(folder / "mig_batch_latency.csv").workloads.values())
    shares = alone_at_shares(read_mixes(folder / "mps_mixes.csv"))
    families = {figures.model for figures in workloads}
    priors = {family: learn_without(workloads, shares, family, knobs).at(PLACES) for family in families}
    return World(workloads, shares, priors, scenarios(workloads, shares, PLACES))


def prior_on(prior: Prior, columns: Sequence[int]) -> Prior:
    keep = [*columns, len(PLACES)]
    return Prior(prior.mean[keep], prior.cov[np.ix_(keep, keep)])


def seen(belief: Belief, at: int, step_ms: float) -> Belief:
    return belief.saw([at], [log(step_ms)]) if isfinite(step_ms) else belief.ran_out(at)


class Single:
    """One workload, one question: what each way of choosing costs after so many runs."""

    def __init__(self, world: World, question: Question, which: int, noise: Floats) -> None:
        self.family = world.workloads[which].model
        self.goal, self.columns = question.goal, list(question.places)
        self.places = tuple(PLACES[at] for at in self.columns)
        self.truth = world.truth[which, self.columns]
        self.shown = self.truth * np.exp(noise[self.columns])
        self.world = world
        belief = Belief(self.places, prior_on(world.priors[self.family], self.columns))
        self.inner = self.goal.goal if isinstance(self.goal, Among) else self.goal
        self.belief = belief.asked(self.inner.step_ms) if isinstance(self.inner, Deadline) else belief

    def cost(self, chosen: int) -> float:
        return float(self.goal.costs(self.places, self.truth[None])[0, chosen])

    def believed(self, ran: Sequence[int]) -> Belief:
        belief = self.belief
        for at in ran:
            belief = seen(belief, at, self.shown[at])
        return belief

    def explorer(self, budgets: Sequence[int], first: Sequence[int]) -> dict[int, float]:
        """After each of these numbers of runs. Deadlines have no opening: it would depend on the deadline."""
        return {
            runs: cost
            for most in (1, max(budgets))  # who has but one run makes another one than who has more
            for runs, cost in self._explored(most, first if most > 1 else ()).items()
            if runs in budgets and (runs == 1) == (most == 1)
        }

    def _explored(self, most: int, first: Sequence[int]) -> dict[int, float]:
        belief, left, found = self.belief, list(range(len(self.places))), {}
        for run in range(1, most + 1):
            known = first[run - 1] if run <= len(first) else None
            at = next_run(belief, self.goal, left, most - run + 1).place if known is None else known
            left.remove(at)
            belief = seen(belief, at, self.shown[at])
            found[run] = self.cost(choice(belief, self.goal))
        return found

    def measured_only(self, ran: Sequence[int], margin: float = 0.0) -> float:
        """The best of what it saw; if there is nothing good, the whole device."""
        table = np.full((1, len(self.places)), inf)
        table[0, list(ran)] = self.shown[list(ran)] * exp(margin)
        allowed = list(self.goal.allowed) if isinstance(self.goal, Among) else list(range(len(self.places)))
        limit = self.inner.step_ms if isinstance(self.inner, Deadline) else inf
        if not (table[0, allowed] <= limit).any() or not np.isfinite(table[0, allowed]).any():
            return self.cost(self.columns.index(WHOLE))
        return self.cost(self.goal.choose(self.places, table, frozenset(ran)))

    def leaning(self, ran: Sequence[int]) -> float:
        """One copy: the smallest that may be within 5 % of the fastest, for all that noise would let it."""
        allowed = self.goal.allowed if isinstance(self.goal, Among) else range(len(self.places))
        there = [at for at in ran if at in allowed]
        fastest = min((self.shown[at] for at in there), default=inf)
        if not isfinite(fastest):
            return self.cost(self.columns.index(WHOLE))
        slowest = fastest / NEAR * exp(1.645 * NOISE * 2**0.5)
        return self.cost(min((at for at in there if self.shown[at] <= slowest), key=lambda at: self.places[at].part))


def questions(world: World, which: int, dice: np.random.Generator) -> dict[str, Question]:
    slices = tuple(range(len(SLICES)))
    every = tuple(range(len(PLACES)))
    shares = (WHOLE, *range(len(SLICES), len(PLACES)))
    factor = exp(dice.uniform(log(DEADLINES[0]), log(DEADLINES[1])))
    deadline = Deadline(float(world.truth[which, WHOLE]) * factor)
    return {
        "one copy": Question(OneCopy(), slices),
        "most work an hour": Question(MostWork(), slices),
        "deadline": Question(deadline, slices),
        "MPS share: one copy": Question(Among(OneCopy(), shares), every),
        "MPS share: deadline": Question(Among(deadline, shares), every),
    }


Rows = dict[tuple[str, int, str], dict[int, list[tuple[str, float]]]]
"""By question, budget and way: by seed, family and regret."""


def measure_singles(world: World, seeds: Sequence[int]) -> Rows:
    rows: Rows = defaultdict(lambda: defaultdict(list))
    openings: dict[tuple[str, str], tuple[int, ...]] = {}
    for seed in seeds:
        print(f"single workloads, seed {seed}", file=sys.stderr, flush=True)
        dice = np.random.default_rng([seed, 1])
        for which, figures in enumerate(world.workloads):
            noise = dice.normal(0.0, NOISE, len(PLACES))
            for name, question in questions(world, which, dice).items():
                case, key = Single(world, question, which, noise), (name, figures.model)
                if key not in openings and "deadline" not in name:
                    known = world.others(figures.model, case.places)
                    openings[key] = opening(known, case.goal)
                for budget, way, cost in ways(case, openings.get(key, ()), dice):
                    rows[name, budget, way][seed].append((figures.model, cost))
    return rows


def ways(case: Single, first: Sequence[int], dice: np.random.Generator) -> Iterator[tuple[int, str, float]]:
    count = len(case.places)
    after = case.explorer([count * budget // 100 for budget in BUDGETS_PCT], first)
    for budget in BUDGETS_PCT:
        runs = count * budget // 100
        yield budget, "explorer", after[runs]
        for ran in combinations(range(count), runs):
            name = " + ".join(case.places[at].name for at in ran)
            yield budget, f"fixed: {name}", case.measured_only(ran)
            if isinstance(case.inner, Deadline):
                yield budget, f"fixed, with a margin: {name}", case.measured_only(ran, 1.645 * NOISE)
            if isinstance(case.inner, OneCopy):
                yield budget, f"fixed, with a margin: {name}", case.leaning(ran)
            if count == len(SLICES):
                yield budget, f"fixed places, our belief: {name}", case.cost(choice(case.believed(ran), case.goal))
        yield budget, "random", case.measured_only([int(at) for at in dice.permutation(count)[:runs]])


class Set:
    """Several workloads that share one device."""

    def __init__(self, world: World, members: Sequence[int], noise: Floats) -> None:
        self.families = [world.workloads[which].model for which in members]
        self.truth = world.truth[list(members), : len(SLICES)]
        self.shown = self.truth * np.exp(noise)
        self.relative = self._relative(self.truth)
        columns = list(range(len(SLICES)))
        self.beliefs = [Belief(SLICES, prior_on(world.priors[family], columns)) for family in self.families]
        self.names = [place.name for place in SLICES]
        self.scores = scores(MODEL, self.relative, self.names)

    @staticmethod
    def _relative(step_ms: Floats) -> Floats:
        """0 where it does not fit: whoever sits there does nothing."""
        speeds: Floats = np.where(np.isfinite(step_ms), step_ms[:, -1:] / step_ms, 0.0)
        return speeds

    @property
    def possible(self) -> bool:
        """Everybody can be seated."""
        fits = np.where(self.relative > 0, self.relative, np.nan)
        return bool(scores(MODEL, fits, self.names).max() > -inf)

    def regret(self, speeds: Floats) -> float:
        chosen = int(scores(MODEL, speeds, self.names).argmax())
        return 100 * (1 - float(self.scores[chosen]) / float(self.scores.max()))

    def explorer(self, budgets: Sequence[int]) -> dict[int, float]:
        """After each of these numbers of runs."""
        beliefs, ran = list(self.beliefs), [set[int]() for _ in self.beliefs]
        thoughts = [think(belief, range(len(SLICES))) for belief in beliefs]
        found = {}
        for run in range(1, max(budgets) + 1):
            fresh = [member for member, done in enumerate(ran) if not done]
            chosen = next_of_set(MODEL, self.names, thoughts, fresh)
            who, at = chosen.who, chosen.place
            beliefs[who] = seen(beliefs[who], at, self.shown[who, at])
            ran[who].add(at)
            left = [place for place in range(len(SLICES)) if place not in ran[who]]
            thoughts[who] = think(beliefs[who], left)
            if run in budgets:
                found[run] = self.regret(np.array([cautious_speeds(belief) for belief in beliefs]))
        return found

    def believed(self, ran: Sequence[Sequence[int]]) -> Floats:
        rows = []
        for who, (belief, places) in enumerate(zip(self.beliefs, ran, strict=True)):
            for at in places:
                belief = seen(belief, at, self.shown[who, at])
            rows.append(cautious_speeds(belief))
        return np.array(rows)

    def by_slices(self, ran: Sequence[Sequence[int]], power: float, cautious: bool = False) -> Floats:
        """What was not run is taken from the nearest that was: speed as the slices (1), their root (0.5), or equal.
        The cautious seat nobody, if they can help it, where less memory is than he is known to run with."""
        rows, doubts = [], []
        for who, places in enumerate(ran):
            fine = [at for at in places if isfinite(self.shown[who, at])]
            out = [SLICES[at].mem_mib for at in places if at not in fine]
            guess = [self._guess(who, at, fine, power) for at in range(len(SLICES))]
            enough = min((SLICES[at].mem_mib for at in fine), default=SLICES[-1].mem_mib)
            doubts.append([MISFIT * cautious * (place.mem_mib < enough) for place in SLICES])
            rows.append([inf if SLICES[at].mem_mib <= max(out, default=0) else guess[at] for at in range(len(SLICES))])
        speeds: Floats = self._relative(np.array(rows)) - np.array(doubts)
        return speeds

    def _guess(self, who: int, at: int, fine: Sequence[int], power: float) -> float:
        if not fine:
            return float((1 / SLICES[at].part) ** power)
        near = min(fine, key=lambda other: abs(other - at))
        return float(self.shown[who, near] * (SLICES[near].part / SLICES[at].part) ** power)


def measure_sets(world: World, seeds: Sequence[int], sets: int) -> Rows:
    rows: Rows = defaultdict(lambda: defaultdict(list))
    for seed in seeds:
        print(f"sets, seed {seed}", file=sys.stderr, flush=True)
        dice, drawn = np.random.default_rng([seed, 2]), 0
        while drawn < sets:
            size = SET_SIZES[drawn % len(SET_SIZES)]
            members = dice.choice(len(world.workloads), size, replace=False)
            case = Set(world, [int(which) for which in members], dice.normal(0.0, NOISE, (size, len(SLICES))))
            if not case.possible:
                continue
            drawn += 1
            half = {family in TUNING_HALF for family in case.families}
            kind = "mixed" if len(half) > 1 else "bert" if half == {True} else "cyclegan"  # a family of that half
            for budget, way, regret in set_ways(case, size, dice):
                rows["mixed sets", budget, way][seed].append((kind, regret))
    return rows


def set_ways(case: Set, size: int, dice: np.random.Generator) -> Iterator[tuple[int, str, float]]:
    count = len(SLICES)
    after = case.explorer([size * count * budget // 100 for budget in BUDGETS_PCT])
    for budget in BUDGETS_PCT:
        runs = count * budget // 100
        yield budget, "explorer", after[size * runs]
        for ran in combinations(range(count), runs):
            name = " + ".join(SLICES[at].name for at in ran)
            for words, power in (("as their slices", 1.0), ("as the root of their slices", 0.5), ("as fast", 0.0)):
                yield budget, f"fixed, others {words}: {name}", case.regret(case.by_slices([ran] * size, power))
                speeds = case.by_slices([ran] * size, power, cautious=True)
                yield budget, f"fixed, cautious, others {words}: {name}", case.regret(speeds)
            yield budget, f"fixed places, our belief: {name}", case.regret(case.believed([ran] * size))
        chance = [[int(at) for at in dice.permutation(count)[:runs]] for _ in range(size)]
        yield budget, "random", case.regret(case.by_slices(chance, 0.5))


def summary(rows: Rows, keep: Callable[[str], bool]) -> dict[str, object]:
    """Means over seeds with standard errors; differences are paired by seed."""
    found: dict[str, dict[str, object]] = defaultdict(dict)
    for name, budget in dict.fromkeys((name, budget) for name, budget, _ in rows):
        means = {key[2]: by_seed(rows[key], keep) for key in rows if key[:2] == (name, budget)}
        if not means["explorer"]:
            continue
        fixed = best_of(means, lambda way: way.startswith("fixed") and "our belief" not in way)
        picked = {"explorer": "explorer", "best fixed rule in hindsight": fixed, "random": "random"}
        if any(way.startswith("fixed places") for way in means):
            picked["best fixed places in hindsight, our belief"] = best_of(means, lambda way: "our belief" in way)
        for rule in ("fixed: 1g.5gb + 3g.20gb", "fixed: 7g.40gb", "fixed: 3g.20gb"):
            picked |= {rule: rule} if rule in means else {}
        found[name][f"{budget}%"] = {
            words: described(means[way], means["explorer"]) | ({} if words == way else {"rule": way})
            for words, way in picked.items()
        }
    return dict(found)


def by_seed(seeds: Mapping[int, Sequence[tuple[str, float]]], keep: Callable[[str], bool]) -> list[float]:
    kept = [[cost for family, cost in cases if keep(family)] for cases in seeds.values()]
    return [fmean(costs) for costs in kept if costs]


def best_of(means: Mapping[str, list[float]], which: Callable[[str], bool]) -> str:
    return min((way for way in means if which(way)), key=lambda way: fmean(means[way]))


def described(values: Sequence[float], explorer: Sequence[float]) -> dict[str, object]:
    over = [value - ours for value, ours in zip(values, explorer, strict=True)]
    return {
        "regret_pct": round(fmean(values), 3),
        "stderr": error(values),
        "more_than_explorer": round(fmean(over), 3),
        "more_stderr": error(over),
    }


def error(values: Sequence[float]) -> float | None:
    return round(stdev(values) / len(values) ** 0.5, 3) if len(values) > 1 else None


def choose(folder: Path) -> list[dict[str, float]]:
    """Likelihood of families left out, a workload and figure, on both halves: the constants follow the first."""
    world = read_world(folder, Knobs())
    rows = []
    for shrink, level_sd, widen in product((0.0, 0.05, 0.1, 0.2), (0.5, 1.0), (1.0, 1.5, 2.0)):
        knobs = Knobs(shrink, level_sd, widen)
        by_half: dict[bool, list[float]] = {True: [], False: []}
        for family in world.priors:
            prior = learn_without(world.workloads, world.shares, family, knobs)
            mine = [figures for figures in world.workloads if figures.model == family]
            values = [log_likelihood(prior, workload_row(f, world.shares.get(f.name, {}))) for f in mine]
            by_half[family in TUNING_HALF].append(fmean(values))
        rows.append(
            {"shrink": shrink, "level_sd": level_sd, "widen": widen, "tuning_half": fmean(by_half[True])}
            | {"other_half": fmean(by_half[False])}
        )
    return sorted(rows, key=lambda row: -row["tuning_half"])


def log_likelihood(prior: Prior, row: Sequence[float]) -> float:
    known = np.isfinite(row)
    off = np.asarray(row)[known] - prior.mean[known]
    cov = prior.cov[np.ix_(known, known)] + NOISE**2 * np.eye(int(known.sum()))
    return float(-(off @ np.linalg.solve(cov, off) + np.linalg.slogdet(cov)[1]) / 2 / known.sum())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="mig_batch_latency.csv and mps_mixes.csv")
    parser.add_argument("--seeds", type=int, default=20, help="of single workloads")
    parser.add_argument("--set-seeds", type=int, default=100, help="of sets")
    parser.add_argument("--first", type=int, default=101, help="the first seed of single workloads")
    parser.add_argument("--first-set", type=int, default=301, help="and of sets")
    parser.add_argument("--sets", type=int, default=12, help="of workloads, for each seed")
    parser.add_argument("--part", choices=["singles", "sets"], help="only these questions")
    parser.add_argument("--choose", action="store_true", help="compare the constants of the belief instead")
    parser.add_argument("--output", choices=["json"], default="json")
    args = parser.parse_args()
    try:
        if args.choose:
            print(json.dumps(choose(args.data), indent=2))
            return 0
        world = read_world(args.data, Knobs())
    except InputError as error_:
        print(error_, file=sys.stderr)
        return 2
    singles = range(args.first, args.first + args.seeds)
    sets = range(args.first_set, args.first_set + args.set_seeds)
    rows: Rows = {} if args.part == "sets" else measure_singles(world, singles)
    rows |= {} if args.part == "singles" else measure_sets(world, sets, args.sets)
    halves: dict[str, Callable[[str], bool]] = {
        "all": lambda _: True,
        "families tuned on": lambda family: family in TUNING_HALF,
        "families not tuned on": lambda family: family not in TUNING_HALF and family != "mixed",
    }
    found = {name: summary(rows, keep) for name, keep in halves.items()}
    about = {
        "seeds": [singles.start, singles.stop - 1],
        "seeds_of_sets": [sets.start, sets.stop - 1],
        "noise": NOISE,
        "sets_per_seed": args.sets,
        "workloads": len(world.workloads),
    }
    print(json.dumps(about | {"regret": found}, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
