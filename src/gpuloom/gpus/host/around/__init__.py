"""Who and what else has to do with this host's GPUs: managers, holders of their device files, modes."""
