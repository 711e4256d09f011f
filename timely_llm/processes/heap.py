"""Python's collector of garbage in a process that serves.

A full collection stops all threads while it looks at all objects: 0.2 s with torch and transformers
imported. What was there at the start stays anyway.
"""

import gc


def settle_heap() -> None:
    """Collect garbage, and leave what is there out of all later collections."""
    gc.collect()
    gc.freeze()


def unsettle_heap() -> None:
    """Let collections look at everything again, before what was there is freed."""
    gc.unfreeze()
