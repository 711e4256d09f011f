"""Commands about histories with faults."""
