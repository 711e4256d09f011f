"""Published traces, read into this package's model."""
