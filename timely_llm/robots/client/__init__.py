"""A plan as the program of its robot sees it: open until it has ended, executed by callables."""
