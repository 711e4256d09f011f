"""Rules that assign requests to servers."""
