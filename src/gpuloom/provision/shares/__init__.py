"""Services on shares of whole GPUs: the planner's steps, a file each."""
