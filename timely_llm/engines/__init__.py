"""Engines run steps over sequences: simulated, transformers, vLLM, or one in another process.

One file or folder an engine, with the methods of `contract.py`, and a line in `registry.py`. The
accounting of sequences, steps and KV is shared (`sequences.py`, `ledger_engine.py`). An engine
carries a step plan out; it decides nothing.
"""
