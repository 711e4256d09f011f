"""The demo: a server, robots and people as processes, a live view, a table, pictures.

What is shown while a run lasts and right after it belongs here. Pictures are drawn by `report`.
"""
