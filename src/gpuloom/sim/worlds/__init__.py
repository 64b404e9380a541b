"""What is true in a simulation, kept apart from what a policy believes: slices, elastic jobs, probes."""
