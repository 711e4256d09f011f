"""The claims about the package's own speed, as commands: `timely-llm benchmark`.

A file is a claim. It measures both sides in one run and returns rows of numbers.
"""
