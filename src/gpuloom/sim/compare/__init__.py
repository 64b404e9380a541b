"""Several policies on the same traces over several seeds."""
