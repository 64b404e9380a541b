"""The page writer, and what every page of gpuloom keeps."""
