"""What a row of a step costs, and what depends on it."""
