"""Which faults a broken history needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from timely_llm.histories.faults import LASTS_S, InjectedFault
from timely_llm.histories.history import HistoryOutcome, simulate


def shrink(
    outcome: HistoryOutcome,
    faults: Sequence[InjectedFault],
    go_on: Callable[[], bool] = lambda: True,
    lasts_s: float = LASTS_S,
) -> list[InjectedFault]:
    """Return fewer faults with which the same invariant breaks: none of them can be left out.

    Faults that had not begun are left out first, then halves of the list, quarters, and so on.

    Args:
        outcome: the history.
        faults: its faults.
        go_on: asked before each try; if it returns false, the rest of the faults stays.
        lasts_s: time after which the history may end, seconds.
    """

    def breaks(fewer: list[InjectedFault]) -> bool:
        return simulate(outcome.seed, fewer, lasts_s, outcome.alone).broken == outcome.broken

    kept = list(faults)
    begun = [fault for fault in faults if fault.at_s <= outcome.at_s]
    if len(begun) < len(kept) and go_on() and breaks(begun):
        kept = begun
    size = max(len(kept) // 2, 1)
    while size:
        before = len(kept)
        for end in range(len(kept), 0, -size):
            fewer = kept[: max(end - size, 0)] + kept[end:]
            if not go_on():
                return kept
            if breaks(fewer):
                kept = fewer
        if size > 1 or len(kept) == before:
            size //= 2
    return kept
