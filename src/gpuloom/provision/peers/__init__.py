"""Published planners, as published: what ours is compared with."""
