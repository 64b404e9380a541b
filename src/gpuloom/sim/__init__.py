"""The virtual body: a clock, the measured world, metrics, comparisons and reports."""
