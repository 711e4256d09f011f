"""Commands for the keys of agents."""
