"""The experiments of Huang et al. 2025."""
