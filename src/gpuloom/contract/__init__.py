"""Between engine and policies, who do not know each other: what a policy sees, says, and is.

One's own policy imports from here: `from gpuloom.contract import Plan, Policy, Reason, View`.
"""

from gpuloom.contract.plan import NO_CHANGE, Plan, Reason
from gpuloom.contract.policy import ON_EVENTS, Policy, When
from gpuloom.contract.view import Estimates, GpuView, JobView, MoveCosts, Phase, Report, View

__all__ = [
    "NO_CHANGE",
    "ON_EVENTS",
    "Estimates",
    "GpuView",
    "JobView",
    "MoveCosts",
    "Phase",
    "Plan",
    "Policy",
    "Reason",
    "Report",
    "View",
    "When",
]
