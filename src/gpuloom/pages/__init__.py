"""The one way to write a page for people: its frame, its parts, its words and its looks."""
