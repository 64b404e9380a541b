"""Who gets what: one file a policy, found by name in the registry."""
