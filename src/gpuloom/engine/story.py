"""A job's history in words: lines for people, rows for programs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from gpuloom.contract.plan import Reason
from gpuloom.engine.history import Entry, What
from gpuloom.engine.log import Header
from gpuloom.pages.words import duration, number
from gpuloom.perf.slices.earlier import Earlier
from gpuloom.work.model import Job

COLOURS = {
    What.PLACED: "green",
    What.SEEN_EARLIER: "cyan",
    What.MOVED: "cyan",
    What.KEPT: "cyan",
    What.RESIZING: "cyan",
    What.RESCALED: "green",
    What.RESCALE_FAILED: "red",
    What.PAUSED: "yellow",
    What.REJECTED: "red",
    What.CRASHED: "red",
    What.CUT_FAILED: "red",
    What.GPU_LOST: "red",
    What.GPU_LEFT: "red",
    What.GPU_CLOSED: "red",
    What.DISPLACED: "red",
    What.STALLED: "yellow",
    What.POLICY_RESET: "yellow",
    What.COMPLETED: "green",
}
INDENT = " " * 27

Line = tuple[str, str]
"""A style of rich ("" is none) and a line of text."""


def rows(entries: Sequence[Entry], *, flat: bool = False) -> list[dict[str, object]]:
    """An object for each entry; `flat`, a row for each reason, without nesting."""
    out: list[dict[str, object]] = []
    for entry in entries:
        report, totals = entry.report, entry.totals
        row: dict[str, object] = {
            "at_s": entry.at_s,
            "event": entry.event.value,
            "cause": entry.cause,
            "grants": [str(grant) for grant in entry.grants],
            "rejected": entry.rejected,
            "gpu": entry.gpu,
            "layout": None if entry.gpu is None else [str(instance) for instance in entry.layout],
            "epoch": report and report.epoch,
            "progress": report and report.progress,
            "metric": report and report.metric,
            "batches_per_s": report and report.batches_per_s,
            "estimates": entry.estimates and {name: one._asdict() for name, one in entry.estimates.items()},
            "lasted_s": entry.lasted_s,
            "waited_s": totals.waited_s,
            "ran_s": totals.ran_s,
            "starts": totals.starts,
            "moves": totals.moves,
            "rescales": totals.rescales,
            "decisions_about_others": entry.others,
            "earlier": entry.earlier and (_seen_earlier(entry.earlier) if flat else asdict(entry.earlier)),
        }
        if flat:
            out += [row | _reason(reason, flat=True) for reason in entry.reasons or (Reason("", "", ""),)]
        else:
            out.append(row | {"reasons": [_reason(reason) for reason in entry.reasons]})
    return out


def _reason(reason: Reason, *, flat: bool = False) -> dict[str, object]:
    others: object = [{"option": option, "value": value} for option, value in reason.alternatives]
    if flat:
        others = "; ".join(f"{option}={value}" for option, value in reason.alternatives)
    return {"chosen": reason.chosen, "why": reason.why, "value": reason.value, "alternatives": others}


def story(job_id: str, header: Header, entries: Sequence[Entry]) -> Iterator[Line]:
    job = next((entry.job for entry in entries if entry.job is not None), None)
    described = f": {_description(job)}" if job is not None else ""
    yield "bold", f"{job_id}{described}"
    yield "dim", f"under {header.policy}, seed {header.seed}, on {header.gpus}"
    yield "", ""
    working = False
    for entry in entries:
        if entry.others and not working and entry.event is not What.ARRIVED:
            yield "dim", f"{INDENT}({entry.others:,} decision{'s' * (entry.others > 1)} about other jobs)"
        yield COLOURS.get(entry.event, ""), f"{entry.at_s:>12,.1f} s  {entry.event.value:<10} {_what(entry)}".rstrip()
        for reason in entry.reasons:
            yield from because(reason)
        working = entry.event is What.STARTED or (working and entry.lasted_s is None)
    yield "", ""
    yield "bold", _sum(entries)


def _description(job: Job) -> str:
    facts = [
        job.workload,
        job.kind.value,
        f"{job.gpus} GPUs" if job.gpus > 1 else None,
        None if job.mem_mib is None else f"{job.mem_mib:,} MiB",
        f"priority {job.priority}" if job.priority else None,
    ]
    return ", ".join(fact for fact in facts if fact)


def _what(entry: Entry) -> str:
    worked = f" after running {duration(entry.lasted_s)}" if entry.lasted_s is not None else ""
    where = ", ".join(map(str, entry.grants))
    match entry.event:
        case What.PLACED | What.MOVED | What.KEPT | What.RESIZING | What.RESCALED:
            return f"on {where} ({entry.cause}){worked}"
        case What.REJECTED:
            return f"{f'on {where} ' if where else ''}({entry.cause}): {entry.rejected}"
        case What.STARTED:
            return f"on {where} after waiting {duration(entry.lasted_s or 0.0)}"
        case What.GPU_CUT | What.CUT_FAILED:
            return f"GPU {entry.gpu} is now {', '.join(map(str, entry.layout)) or 'uncut'}"
        case What.PROBED:
            return f"on GPU {entry.gpu}: predicted speed {_estimates(entry)}"
        case What.GPU_LOST | What.GPU_LEFT | What.GPU_CLOSED:
            return f"GPU {entry.gpu} ({entry.cause}){worked}"
        case What.SEEN_EARLIER if entry.earlier is not None:
            return _seen_earlier(entry.earlier)
        case What.REPORTED if entry.report is not None:
            if entry.report.batches_per_s is not None:
                return f"{number(entry.report.batches_per_s)} batches a second"
            metric = "" if entry.report.metric is None else f", metric {number(entry.report.metric)}"
            return f"epoch {entry.report.epoch}, progress {number(entry.report.progress)}{metric}"
        case _:
            return f"({entry.cause}){worked}"


def _seen_earlier(earlier: Earlier) -> str:
    age = "" if earlier.age_s is None else f", {duration(earlier.age_s)} before"
    rates = ", ".join(f"{profile} {number(rate)}" for profile, rate in earlier.rates.items())
    small = earlier.too_small_mib
    parts = [f"{rates} steps a second" if rates else "", f"{small:,} MiB were too few" if small is not None else ""]
    return f"by {earlier.by_whom}{age}, on {earlier.model}: {'; '.join(filter(None, parts))}"


def _estimates(entry: Entry) -> str:
    estimates = entry.estimates or {}
    return ", ".join(f"{name} {one.speed:.2f} ({one.low:.2f}-{one.high:.2f})" for name, one in estimates.items())


def because(reason: Reason) -> Iterator[Line]:
    """What was chosen and why; below it, what it was chosen instead of."""
    score = "" if reason.value is None else f" ({_score(reason.value)})"
    yield "", f"{INDENT}{reason.chosen}: {reason.why}{score}"
    if reason.alternatives:
        others = ", ".join(f"{option}{f' ({_score(v)})' * (v is not None)}" for option, v in reason.alternatives)
        yield "dim", f"{INDENT}  instead of {others}"


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _sum(entries: Sequence[Entry]) -> str:
    began = max((at for at, entry in enumerate(entries) if entry.event is What.ARRIVED), default=0)
    life, last = [entry.event for entry in entries[began:]], entries[-1]
    if What.COMPLETED in life or What.CANCELLED in life:
        end = f"{duration(last.at_s - entries[began].at_s)} in all"
    else:
        end = "not started again after it crashed" if life[-1] is What.CRASHED else "not ended when the log ends"
    totals = last.totals
    if not totals.starts:
        return f"never started; {end}"
    starts = "once" if totals.starts == 1 else f"{totals.starts} times"
    moves = {0: "never moved", 1: "moved once"}.get(totals.moves, f"moved {totals.moves} times")
    resized = {0: "", 1: ", resized once"}.get(totals.rescales, f", resized {totals.rescales} times")
    times = f"waited {duration(totals.waited_s)}, ran {duration(totals.ran_s)}, {end}"
    return f"{times}; started {starts}, {moves}{resized}"
