"""The experiments of Zhan et al. 2025 (PICE), in virtual time."""
