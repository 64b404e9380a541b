"""Which run to make next, so that few of them are enough to choose: what is believed, and what a run is worth."""
