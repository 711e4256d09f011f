"""Runs and recordings as pages, pictures and text: all drawing is here.

Each medium has one renderer. `palette.py` has the colours, `words.py` the words. Measures belong to
`experiments`.
"""
