"""The job's side of gpuloom: report progress, save when asked to stop, resume. Standard library only, import-safe."""

from gpuloom.train.job import checkpoint_dir, on_stop, report, resuming

__all__ = ["checkpoint_dir", "on_stop", "report", "resuming"]
