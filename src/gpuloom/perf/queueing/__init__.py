"""How long do requests take at a batching server: its rules, its latency exactly, by table, and by running it."""
