"""Pages of results: their experiments, their pictures and tables, and whether all is there.

    python -m tools.results list
    python -m tools.results run fleet --folder DATA     # each document is made once
    python -m tools.results write fleet --folder DATA   # pictures and tables into docs/results
    python -m tools.results check

`pages.py` says what belongs to a page. A page's title and its first sentences are written by hand.
"""
