"""Jobs and services, their file format, and the traces they come from."""
