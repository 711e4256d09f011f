"""The demo: a server, robots and people as processes, a live view, a table, pictures."""
