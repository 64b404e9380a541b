"""Devices that fail: whose fault it was, who is asked again, and how they come back."""
