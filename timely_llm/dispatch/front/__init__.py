"""The front of several servers: what is sent where, and what happens when one is lost."""
