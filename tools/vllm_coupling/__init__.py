"""What this package couples to in vLLM, compared with a release of vLLM, by syntax trees alone."""
