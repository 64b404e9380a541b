"""One run of servers: start all, wait until they are ready, ask all of them at one batch after the other, stop them.

Beginning, placing, watching and ending are `campaign.run`'s, which knows commands that tell steps. Here the command is
Triton, and whoever tells is the one who asks it. All servers of a run are asked at the same time, each one request at a
time, and what counts is the time in which all are past their warm-up, as with commands.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from gpuloom.gpus.grant import Grant
from gpuloom.gpus.host.cpu import THREADS
from gpuloom.gpus.host.files import read_anyones
from gpuloom.gpus.layouts import part_of
from gpuloom.live.store import Launch
from gpuloom.measure.campaign.judge import Seen, is_over
from gpuloom.measure.campaign.listen import LOOK_S, Listener
from gpuloom.measure.campaign.order import Next
from gpuloom.measure.campaign.run import Bench, OneRun, Running, job_id
from gpuloom.measure.plan import Workload
from gpuloom.measure.results import Copy, Outcome
from gpuloom.measure.service.ask import Asker, asked_once
from gpuloom.measure.service.plan import batches_of
from gpuloom.measure.steps import Heard
from gpuloom.serve.deployment import Level
from gpuloom.serve.gateway.http_message import post
from gpuloom.serve.load.request import made_up_body, written_body
from gpuloom.serve.triton.environment import Triton
from gpuloom.serve.triton.server import HOST, Ports, ServerSpec, command, free_ports

READY_EVERY_S, ANSWER_S = 0.1, 1.0
FEW, MOST_TIMES_LONGER = 12, 10
MOST_LOG_BYTES, MOST_WORDS = 64 << 20, 300
FAILED = re.compile(r"failed to load '[^']*' version \d+: (.*?)\"?$", re.M)
ENDING_S = 2.0
"""So long after it has stopped to answer a server that is about to end has ended."""
SHARED_MEMORY = Path("/dev/shm")


class Kitchen:
    """What servers are made of."""

    def __init__(self, triton: Triton, put: Callable[[], Mapping[str, Path]], shm_prefix: str) -> None:
        """`put`: has every model where a server can read it, and says where, by model."""
        self.triton, self._put, self.shm_prefix = triton, put, shm_prefix

    @cached_property
    def repositories(self) -> Mapping[str, Path]:
        return self._put()

    def clean(self) -> None:
        """Remove shared memory that killed servers have left."""
        for path in SHARED_MEMORY.glob(f"{self.shm_prefix}*"):
            path.unlink(missing_ok=True)


def shm_prefix(folder: Path) -> str:
    return f"gpuloom-measure-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:10]}-"


@dataclass(frozen=True, slots=True)
class Asked:
    """All servers of a run, asked at these batches."""

    batches: tuple[int, ...]
    seen: tuple[Seen, ...]
    stopped_s: float


class Waiting:
    """Nobody asks yet, or any more."""

    late_s, trouble, odd = 0.0, None, None

    def hear(self) -> list[Heard]:
        return []


class ServiceRun(OneRun):
    def __init__(self, kitchen: Kitchen, bench: Bench, chosen: Next) -> None:
        super().__init__(bench, chosen)
        self._kitchen = kitchen
        self._ports: list[int] = []
        """Of HTTP, by copy."""
        self._taken: set[int] = set()
        self._asked: list[Asked] = []

    # ---- beginning -------------------------------------------------------------------------------------------------

    def _start(self, number: int, workload: Workload, grant: Grant) -> Running:
        http, metrics = self._free_ports()
        name = job_id(self._chosen.number, number)
        spec = ServerSpec(
            name=name,
            service=workload.name,
            model=workload.name,
            level=Level.PLANNED,
            grant=grant,
            repository=self._kitchen.repositories[workload.name],
            log=Path(os.devnull),
            weight=1.0,
            standin=False,
        )
        words = command(self._kitchen.triton, spec, Ports(http, metrics, None), f"{self._kitchen.shm_prefix}{name}-")
        # A Python of ours is none of its models'.
        own = {"PYTHONPATH": "", "PYTHONHOME": "", **self._kitchen.triton.environment(os.environ)}
        own |= self._threads(grant)
        return self._launch(number, tuple(words), lambda granted: dict(granted.environment) | own, grant, _nobody)

    def _threads(self, grant: Grant) -> dict[str, str]:
        """On a CPU device as many as `serve up` gives such a share, which it has for good; a job's may change."""
        cpus = self._bench.devices.cpus(grant.gpu)
        if cpus is None or os.environ.get(THREADS):
            return {}
        return {THREADS: str(max(1, round(cpus * part_of(self._bench.model, grant.instance) * grant.share_pct / 100)))}

    def _free_ports(self) -> tuple[int, int]:
        """For HTTP and metrics; none that another server of this run is about to take."""
        while True:
            http, metrics = free_ports(2)
            if not {http, metrics} & self._taken:
                self._taken |= {http, metrics}
                self._ports.append(http)
                return http, metrics

    # ---- meanwhile -------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        models = self._bench.workloads
        every = batches_of(self._chosen.arrangement, models)
        if not self._until_ready():
            self._note(every[0])
            return
        for batches in every:
            if self._bench.interrupts():
                return
            askers = self._ask(batches)
            try:
                if askers is not None:
                    self._listen()
            finally:
                for asker in askers or ():
                    asker.stop()
            self._note(batches)
            if any(is_over(copy.seen) for copy in self._copies):
                return

    def _listen(self) -> None:
        """As long as bounds say, and longer where answers are few."""
        for _ in range(MOST_TIMES_LONGER):
            super()._watch()
            self._await_the_open()
            few = any(len(copy.seen.heard) < FEW for copy in self._copies)
            if not few or self._bench.interrupts() or any(is_over(copy.seen) for copy in self._copies):
                return

    def _await_the_open(self) -> None:
        """A request that is open for longer than any before is waited for: it counts too, or it will never end."""
        deadline_s = time.monotonic() + self._bench.bounds.patience_s
        while time.monotonic() < deadline_s and not self._bench.interrupts():
            for copy in self._copies:
                copy.hear()
                if copy.job.keeper_has_gone():
                    self._note_end(copy, time.monotonic())
            if any(is_over(copy.seen) for copy in self._copies) or not any(map(_is_late, self._copies)):
                return
            time.sleep(LOOK_S)

    def _until_ready(self) -> bool:
        deadline_s = time.monotonic() + self._bench.bounds.patience_s
        while not self._bench.interrupts():
            now_s = time.monotonic()
            for copy in self._copies:
                if copy.job.keeper_has_gone():
                    self._note_end(copy, now_s)
            if any(is_over(copy.seen) for copy in self._copies):
                return False
            if all(self._is_ready(at) for at in range(len(self._copies))):
                return True
            if now_s >= deadline_s:
                for copy in self._copies:
                    copy.seen.waited = True
                return False
            time.sleep(READY_EVERY_S)
        return False

    def _is_ready(self, at: int) -> bool:
        answer = asked_once(HOST, self._ports[at], f"{self._path(at)}/ready", ANSWER_S)
        return answer is not None and answer.status == 200

    def _path(self, at: int) -> str:
        return f"/v2/models/{self._chosen.arrangement.seats[at].workload}"

    def _ask(self, batches: Sequence[int]) -> list[Asker] | None:
        """Begin to ask everybody; None if a request cannot be made, which its copy's `seen` then says."""
        requests = [self._request(at, batch) for at, batch in enumerate(batches)]
        for copy, request in zip(self._copies, requests, strict=True):
            copy.seen = Seen(refused=None if isinstance(request, bytes) else request)
        if not all(isinstance(request, bytes) for request in requests):
            return None
        patience_s = self._bench.bounds.patience_s
        askers = []
        for copy, port, request in zip(self._copies, self._ports, requests, strict=True):
            assert isinstance(request, bytes)
            asker = Asker(HOST, port, request, patience_s)
            copy.listener = asker
            askers.append(asker)
        return askers

    def _request(self, at: int, batch: int) -> bytes | str:
        """Or why it cannot be made."""
        served = self._bench.workloads[self._chosen.arrangement.seats[at].workload].served
        assert served is not None
        try:
            if served.body is not None:
                body = written_body(Path(served.body).read_bytes(), batch)
            else:
                answer = asked_once(HOST, self._ports[at], self._path(at), ANSWER_S)
                if answer is None or answer.status != 200:
                    return "the server does not say what its model takes"
                body = made_up_body(json.loads(answer.body), batch)
            return post(f"{self._path(at)}/infer", body.content, body.json_bytes)
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"a request cannot be made: {error}: say with --body what it takes"

    def _note(self, batches: tuple[int, ...]) -> None:
        stopped_s = time.monotonic()
        for copy in self._copies:
            if copy.seen.refused is not None:
                self._look_why(copy)
        self._asked.append(Asked(batches, tuple(copy.seen for copy in self._copies), stopped_s))

    def _look_why(self, copy: Running) -> None:
        """A server that did not answer may have been killed, or have ended: then that is what went wrong."""
        deadline_s = time.monotonic() + ENDING_S
        while time.monotonic() < deadline_s:
            if copy.launch.oom_kills():  # of one process: the others may go on
                copy.seen.refused = "the kernel killed a process of its server: out of memory"
                return
            if copy.job.keeper_has_gone():
                self._note_end(copy, time.monotonic())
                return
            time.sleep(LOOK_S)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        for copy in self._copies:
            copy.listener = Waiting()
        try:
            super()._end()
        finally:
            self._kitchen.clean()

    def _rows(self) -> tuple[Copy, ...]:
        patience_s = self._bench.bounds.patience_s
        return tuple(
            _told(
                replace(row, batches=",".join(map(str, asked.batches))),
                patience_s,
                seen.ended is not None,
                _why_not_loaded(copy.outputs) if seen.ended is not None else None,
            )
            for asked in self._asked
            for row, seen, copy in zip(self._judged(asked.seen, asked.stopped_s), asked.seen, self._copies, strict=True)
        )


def _nobody(launch: Launch, outputs: Sequence[Path]) -> Listener:  # noqa: ARG001
    return Waiting()


def _is_late(copy: Running) -> bool:
    """Whether the request that is open has taken longer than any that was answered."""
    heard = copy.seen.heard
    if len(heard) < FEW:
        return False
    longest_s = max(after.at_s - before.at_s for before, after in pairwise(heard[1:]))
    return time.monotonic() - heard[-1].at_s > longest_s


def _told(row: Copy, patience_s: float, ended: bool, why: str | None) -> Copy:
    """What is said of commands, said of servers. `why`: its model did not load."""
    if row.outcome is Outcome.SILENT:
        said = "its server ended by itself" if ended else f"its server did not answer within {patience_s:g} s"
        return replace(row, said=said)
    if row.outcome is Outcome.CRASHED and why is not None:
        return replace(row, said=why)
    return row


def _why_not_loaded(outputs: Sequence[Path]) -> str | None:
    """Triton's own words on it, which are not its last ones."""
    for path in outputs:
        with suppress(OSError):
            text = read_anyones(path, MOST_LOG_BYTES).decode(errors="replace")
            if found := FAILED.search(text):
                words = found[1].encode().decode("unicode_escape", "replace")
                return "its model does not load: " + " ".join(words.split())[:MOST_WORDS]
    return None
