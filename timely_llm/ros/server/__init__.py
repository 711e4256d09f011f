"""The plan server's node."""
