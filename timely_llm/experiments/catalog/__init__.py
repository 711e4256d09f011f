"""The experiments: one file each, named as its command."""
