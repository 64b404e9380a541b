"""The one state machine: events in, instructions out, no input or output of its own."""
