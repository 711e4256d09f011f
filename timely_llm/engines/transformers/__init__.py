"""The embedded engine: packed ragged batches on models of the transformers library."""
