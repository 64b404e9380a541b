"""Which servers are to run with which share: started, watched, corrected, replaced, told of."""
