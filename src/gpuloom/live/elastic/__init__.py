"""Elastic jobs while they run: told to take other devices in place, and heard about how they do with what they have."""
