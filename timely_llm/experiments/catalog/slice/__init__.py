"""The experiments of Zhou et al. 2025 (SLICE)."""
