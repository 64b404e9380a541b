"""What runs and measurements on this machine saw, kept from one to the next."""
