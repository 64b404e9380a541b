"""Verbs that look and explain."""
