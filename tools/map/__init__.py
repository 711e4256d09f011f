"""Draws docs/map.md from the code: `python -m tools.map > docs/map.md`."""
