"""Robot models: what simulated robots are asked, what they see, how they execute plans."""
