"""Runs and recordings as one page for people, and as pictures."""
