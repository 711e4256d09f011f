"""A model must say the same of a sequence in chunks and in company as of the sequence alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from timely_llm.core.errors import ModelError
from timely_llm.engines.track import Part, Track

_TOLERANCE = {torch.float32: 0.01, torch.bfloat16: 0.2, torch.float16: 0.05}


def check_model(name: str, vocabulary: int, forward: Callable[[Sequence[Part]], Tensor]) -> Tensor:
    """Find out whether a model can be served in packed steps.

    It finds models that keep something of a sequence outside of the KV, or that count positions
    by themselves.

    Args:
        name: the model's, for the message.
        vocabulary: how many tokens it knows.
        forward: computes parts and returns the logits of those that finish.

    Returns:
        The logits after a sequence that nothing depends on.

    Raises:
        ModelError: it cannot.
    """
    words = [7 * place % vocabulary for place in range(3, 15)]
    alone = Track("alone", words, None, 0, 0, 0)
    split = Track("split", words, None, 0, 0, 0)
    other = Track("other", words[6:], None, 0, 0, 0)
    expected = forward([Part.of(alone, 0, len(words))])[0]
    forward([Part.of(other, 0, 4), Part.of(split, 0, 5)])
    forward([Part.of(split, 5, 6), Part.of(other, 4, 1)])
    found = forward([Part.of(other, 5, 1), Part.of(split, 11, 1)])[1]
    if not alike(found, expected):
        raise ModelError(
            f"the model {name!r} is not supported by the engine transformers: a sequence's answer"
            " depends on the others in its step"
        )
    return expected


def alike(found: Tensor, expected: Tensor) -> bool:
    """Return whether logits are the same but for the rounding of their number type."""
    difference = (found - expected).float().abs().mean() / expected.float().std()
    return bool(difference < _TOLERANCE[expected.dtype])
