"""How many random cases a property is tried with, in each profile of Hypothesis."""

from typing import Any

from hypothesis import settings

from timely_llm.conformance.cases import STANDARD


def examples(count: int, **more: Any) -> settings:
    """Return settings with `count` examples; a profile with fewer than `STANDARD` scales it.

    Args:
        count: examples in the profile of `make test`.
        more: further settings.
    """
    scaled = count * settings().max_examples // STANDARD
    return settings(deadline=None, max_examples=max(1, scaled), **more)
