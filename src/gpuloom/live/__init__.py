"""The body that runs jobs for real on this machine: processes, MIG, MPS, and a state directory that outlives it."""
