"""What gpuloom needs of a real driver, done once on an idle GPU and written down: `gpuloom doctor --selftest`."""
