"""The two servers of every replica: what each is, and the files that Triton reads to become it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpuloom.errors import InputError
from gpuloom.provision.plan import Replica
from gpuloom.serve.deployment import Deployment, Level, model_name, slot_of
from gpuloom.serve.fleet.shadows import shadow_grants
from gpuloom.serve.fleet.wish import Wish
from gpuloom.serve.options import Options
from gpuloom.serve.state import State
from gpuloom.serve.times import BatchMs
from gpuloom.serve.triton.repository import standin_text, write_own, write_standin
from gpuloom.serve.triton.server import ServerSpec

SLOWDOWN = "slowdown"
"""A file in a replica's folder: a factor on the stand-in's times, for rehearsals."""


def prepare(deployment: Deployment, batch_ms: BatchMs | None, state: State, options: Options) -> Wish:
    """Write the repository of every server. `batch_ms` is not needed with the user's own models."""
    shadows = shadow_grants(deployment.plan.replicas)
    specs, slower = {}, {}
    for replica in deployment.plan.replicas:
        slot = slot_of(replica)
        shadow = replace(replica, grant=shadows[slot])
        planned_ms, shadow_ms = (None, None) if batch_ms is None else (batch_ms(replica), batch_ms(shadow))
        pair = (_spec(replica, Level.PLANNED, state, options), _spec(shadow, Level.SHADOW, state, options))
        _write(deployment, replica, pair[0], planned_ms, options)
        _write(deployment, shadow, pair[1], shadow_ms, options)
        specs[slot] = pair
        slower[slot] = (
            shadow.grant.share_pct / replica.grant.share_pct
            if planned_ms is None or shadow_ms is None
            else _slower(planned_ms, shadow_ms)
        )
    slo_ms = {name: promise.slo_ms for name, promise in deployment.promises.items()}
    return Wish(specs, slower, slo_ms, options.dilate, options.standby, options.rules, options.timing)


def _slower(planned_ms: Sequence[float], shadow_ms: Sequence[float]) -> float:
    return max(1.0, *(slow / fast for slow, fast in zip(planned_ms, shadow_ms, strict=False)))


def _spec(replica: Replica, level: Level, state: State, options: Options) -> ServerSpec:
    model = model_name(replica.service)
    folder = state.servers_dir / f"{model}-{replica.number}" / level.value
    return ServerSpec(
        name=f"{model}-{replica.number}-{level.value}",
        service=replica.service,
        model=model,
        level=level,
        grant=replica.grant,
        repository=folder / "repository",
        log=folder / "triton.log",
        weight=replica.rate_rps,
        standin=options.standin,
        grpc=options.grpc_port is not None,
    )


def _write(
    deployment: Deployment, replica: Replica, spec: ServerSpec, times_ms: Sequence[float] | None, options: Options
) -> None:
    batch, delay_ms = replica.grant.batch or 1, replica.queue_delay_ms * options.dilate
    spec.log.parent.mkdir(parents=True, exist_ok=True)
    spec.log.unlink(missing_ok=True)
    if times_ms is None:
        source = _own_model(deployment, replica.service, options.models)
        write_own(spec.repository, spec.model, source, batch, delay_ms)
        return
    slowdown = spec.log.parent.parent / SLOWDOWN
    slowdown.unlink(missing_ok=True)
    text = standin_text([ms * options.dilate for ms in times_ms], batch, delay_ms, slowdown)
    write_standin(spec.repository, spec.model, text)


def _own_model(deployment: Deployment, service: str, models: Path | None) -> Path:
    assert models is not None
    names = [name for name in (service, deployment.promises[service].workload) if name is not None]
    for name in names:
        if "/" not in name and (models / name).is_dir():
            return models / name
    raise InputError(
        f"{models} has no model {' or '.join(names)}: expected a folder with a config.pbtxt for each service"
    )
