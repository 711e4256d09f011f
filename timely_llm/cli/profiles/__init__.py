"""Parts of `timely-llm profile`."""
