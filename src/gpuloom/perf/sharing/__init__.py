"""How long does a batch take beside others on one GPU: our model and its peers', fitted, with their errors."""
