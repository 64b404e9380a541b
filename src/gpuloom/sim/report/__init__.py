"""The report of one or more runs: one page that needs no network and no program but a browser."""

from gpuloom.sim.report.data import RunData, run_data
from gpuloom.sim.report.page import write_report

__all__ = ["RunData", "run_data", "write_report"]
