"""`timely-llm cloud-...`: help from a cloud, on one machine."""
