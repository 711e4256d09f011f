"""Pages of results: their experiments, their pictures and tables, and whether all is there.

    python -m tools.results list
    python -m tools.results run --processes 2 --folder DATA   # what is not there yet
    python -m tools.results write --folder DATA               # pictures and tables into docs
    python -m tools.results check

`run` and `write` take names of pages too. A document is made again after a change of the code that
decides results. `pages` says what belongs to a page. A page's title and its first sentences are
written by hand; `<!-- sentences -->` stands where they are missing.
"""
