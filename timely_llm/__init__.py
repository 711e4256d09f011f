"""Time-aware serving of language-model plans and conversations to robots."""

__version__ = "0.1.0"
