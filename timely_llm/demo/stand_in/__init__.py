"""A stand-in for a cloud: an engine of the package behind OpenAI's HTTP interface."""
