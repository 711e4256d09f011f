"""Several expansions of one sketch, and which of them is taken: by confidence or by a dry run."""
