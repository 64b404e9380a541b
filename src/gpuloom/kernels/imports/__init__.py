"""Profiles from what other tools recorded."""
