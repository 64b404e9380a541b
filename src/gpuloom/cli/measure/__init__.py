"""Verbs that measure and learn from measurements."""
