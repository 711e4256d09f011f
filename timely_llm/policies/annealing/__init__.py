"""Orders of whole requests, and the searches for the best one (Huang et al. 2025)."""
