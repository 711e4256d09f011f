"""The demo: a server and a fleet as processes, a live view, a table, timeline pictures."""
