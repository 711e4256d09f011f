"""YAML documents that users write: read within bounds, checked, with one sentence per error."""
