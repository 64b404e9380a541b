"""What touches a machine: NVML, cutting GPUs, MPS daemons, who holds which GPU, locks and files."""
