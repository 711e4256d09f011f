"""The serving loop: admit, step, deliver."""
