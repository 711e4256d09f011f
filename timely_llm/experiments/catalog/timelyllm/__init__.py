"""The experiments of Ling et al. 2024 (TimelyLLM)."""
