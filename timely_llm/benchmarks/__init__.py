"""What the package claims about its own speed, as commands: `timely-llm benchmark`."""
