"""A campaign of servers: their models are put where Triton reads them, and what was measured becomes profiles.

models/         the models, as any Triton wants them: `gpuloom serve up --models` of this folder
repositories/   what the measured servers read
profile.json    latencies by batch and share, and pairs: `gpuloom provision --profile`
mig.csv         points on slices: `gpuloom provision --mig`

Beside them are a campaign's own files (`campaign.campaign`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.gpus.host.cutter import Cutter
from gpuloom.gpus.host.files import write_whole
from gpuloom.gpus.model import GpuModel
from gpuloom.live.store import Store
from gpuloom.measure.campaign.campaign import Campaign, Result, Watcher, Wish
from gpuloom.measure.results import Copy
from gpuloom.measure.service.model import needs_onnx, repository_for
from gpuloom.measure.service.profile import mig_csv, models_of, pairs_of, points
from gpuloom.measure.service.run import Kitchen, ServiceRun, shm_prefix
from gpuloom.serve.triton.environment import Triton, ensure_onnx
from gpuloom.work.measured.latency_profiles import as_json

PROFILE, MIG = "profile.json", "mig.csv"


@dataclass(frozen=True, slots=True)
class Written:
    points: list[dict[str, object]]
    """For people: a row for each."""
    failed: list[str]
    files: list[str]


def measure_services(
    wish: Wish, store: Store, cutter: Cutter, watcher: Watcher, triton: Triton, say: Callable[[str], None]
) -> tuple[Result, Written]:
    """Store and cutter are open."""
    if (store.folder / "servers").exists():
        raise InputError(f"{store.folder}: is what gpuloom serve has left; expected a folder of its own")
    if needs_onnx(wish.plan.workloads, triton):
        ensure_onnx(triton, say)
    # Who is refused has changed nothing: models are put there by the first run.
    kitchen = Kitchen(triton, partial(_repositories, store.folder, wish, triton), shm_prefix(store.folder))
    campaign = Campaign(wish, store, cutter, watcher, partial(ServiceRun, kitchen))
    kitchen.clean()
    result = campaign.run()
    return result, write(store.folder, result, campaign.model)


def _repositories(folder: Path, wish: Wish, triton: Triton) -> dict[str, Path]:
    return {
        model.name: repository_for(model, folder / "models", folder / "repositories", triton)
        for model in wish.plan.workloads
    }


def write(folder: Path, result: Result, model: GpuModel) -> Written:
    """The profiles of what was measured so far."""
    found = points(result.rows)
    files = []
    alone, pairs = models_of(found), pairs_of(found)
    if alone:
        device = {"name": model.name, "mem_mib": model.mem_mib}
        text = as_json(device, alone, [pair for pair in pairs if pair["neighbour"] in alone], measured=_facts(result))
        write_whole(folder / PROFILE, text)
        files.append(PROFILE)
    slices = mig_csv(result.rows, model)
    if slices is not None:
        write_whole(folder / MIG, slices)
        files.append(MIG)
    told = [
        {
            "model": point.model,
            "batch": point.batch,
            "place": point.place,
            "beside": _beside(point.neighbour, point.copies),
            **point.numbers,
        }
        for point in found
    ]
    return Written(told, _failures(result.rows), files)


def _beside(neighbour: tuple[str, int, float] | None, copies: int) -> str | None:
    if neighbour is not None:
        return f"{neighbour[0]} x{neighbour[1]} {neighbour[2]:g}%"
    return f"{copies - 1} more" if copies > 1 else None


def _facts(result: Result) -> Mapping[str, object]:
    told = result.metadata
    return {name: told[name] for name in ("gpuloom", "device", "begun_unix_s", "noise", "runs", "spent_s", "left_out")}


def _failures(rows: Sequence[Copy]) -> list[str]:
    """Each once."""
    failed = [row for row in rows if row.step_ms is None]
    said = (f"{row.seat.workload}, batch {row.batch}, {row.arrangement}: {row.outcome}: {row.said}" for row in failed)
    return list(dict.fromkeys(said))
