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

    Args:
        outcome: the history.
        faults: its faults.
        go_on: asked before each try; if it returns false, the rest of the faults stays.
        lasts_s: time after which the history may end, seconds.
    """
    kept = list(faults)
    for fault in reversed(faults):
        if not go_on():
            break
        fewer = [one for one in kept if one is not fault]
        again = simulate(outcome.seed, fewer, lasts_s, outcome.alone)
        if again.broken == outcome.broken:
            kept = fewer
    return kept
