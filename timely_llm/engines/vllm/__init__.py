"""The engine on vLLM's V1 core: stock vLLM schedules through the package's step plans."""
