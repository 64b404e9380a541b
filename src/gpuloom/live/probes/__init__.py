"""Measuring jobs side by side, while they run, and what that says of each on each slice."""
