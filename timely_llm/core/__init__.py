"""The nouns of the project; imports nothing else of it."""
