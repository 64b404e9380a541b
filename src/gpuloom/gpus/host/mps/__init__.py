"""MPS: one daemon for each device that is shared by percentages, and whether it still answers."""
