"""One Triton server: its environment, its model folder, its process and its counters."""
