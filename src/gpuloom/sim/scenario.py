"""Everything about a run but the policy and its seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuloom.contract.view import MoveCosts
from gpuloom.perf.goodput.tables import ElasticTables
from gpuloom.perf.slices.earlier import Earlier
from gpuloom.sim.costs import Costs
from gpuloom.sim.faults import NO_FAULTS, Faults
from gpuloom.sim.worlds.probes import AuthorsError, Prober
from gpuloom.work.measured.figures import Figures
from gpuloom.work.model import TraceJob


@dataclass(frozen=True, slots=True)
class Scenario:
    trace: Sequence[TraceJob]
    gpus: str
    """As on the command line: 8xA100-40GB."""
    figures: Figures | None = None
    """The truth about slices; None takes the shipped figures."""
    tables: Mapping[str, ElasticTables] | None = None
    """The truth about elastic jobs; given, the run takes place in that world."""
    probers: Callable[[int], Prober] = AuthorsError
    """By seed: who says what a probe would predict."""
    costs: Costs = field(default_factory=Costs)
    slice_costs: Costs | None = None
    """What starts cost of jobs on slices beside elastic ones; None: the same."""
    told: MoveCosts | None = None
    """What the policy believes that moving a job costs; None: the truth."""
    every_s: float | None = None
    """Ask the policy every so many seconds, whatever it prefers."""
    faults: Faults = NO_FAULTS
    skipped: Mapping[str, int] = field(default_factory=dict)
    """What the trace held besides, by why it was left out."""
    earlier: tuple[Earlier, ...] = ()
    """What the policy is handed of earlier runs, before the first job."""
    notes: tuple[str, ...] = ()
    """What a user should know about the inputs."""
