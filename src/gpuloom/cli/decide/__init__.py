"""Verbs that decide, and prove it on measured data."""
