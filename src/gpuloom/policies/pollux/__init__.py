"""Pollux (OSDI'21), as published."""
