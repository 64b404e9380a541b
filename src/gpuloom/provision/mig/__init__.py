"""Services on MIG instances with processes inside."""
