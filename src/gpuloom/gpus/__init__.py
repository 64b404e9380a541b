"""What a GPU is, how it can be cut, and how to get from one cut to another. Knows nothing of jobs or time."""
