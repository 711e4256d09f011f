"""Predicted step times that are wrong by a ratio and stay so."""

from __future__ import annotations

from collections.abc import Sequence

from timely_llm.policies.step_time import StepTime


class MisjudgedStepTime(StepTime):
    """Predicted seconds of a step at a ratio to the true ones, however many steps are observed.

    Args:
        ratio: predicted over true seconds, above 0.
        seconds: true coefficients, in the order of `StepTime`.
        table_s: true seconds of a step of 1, 2, ... rows; empty: none.
        beyond_s: true seconds of each row beyond the table.
    """

    def __init__(
        self, ratio: float, *seconds: float, table_s: Sequence[float] = (), beyond_s: float = 0.0
    ) -> None:
        super().__init__(
            *(ratio * one for one in seconds),
            table_s=[ratio * one for one in table_s],
            beyond_s=ratio * beyond_s,
        )
        self._ratio = ratio

    def observe(
        self, seconds: float, rows: int, prefill_tokens: int = 0, context_tokens: int = 0
    ) -> None:
        """Learn from a step as if it had taken the ratio of `seconds`."""
        super().observe(self._ratio * seconds, rows, prefill_tokens, context_tokens)
