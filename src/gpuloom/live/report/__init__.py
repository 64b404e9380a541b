"""What a run was: told from its log, and shown on one page."""
