"""Servers and their dispatcher are killed at random moments; no request is lost in silence."""
