"""Figures that others measured: those that ship with the package, and readers of files of them."""
