"""Verbs that carry decisions out on this machine."""
