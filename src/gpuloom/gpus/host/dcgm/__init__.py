"""DCGM, as far as gpuloom asks it: counters of a host engine that somebody else runs."""
