"""Why a generation takes part in a step, or does not: the vocabulary of policies' reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    """What a policy decided for one generation and one step.

    `WAITS` needs something that others have, `DEFERRED` needs nothing yet.
    """

    JOINED = "joined"
    WAITS = "waits"
    DEFERRED = "deferred"


class Cause(Enum):
    """What decided. The name in lower case stands in event logs.

    Attributes:
        outcome: what the decision was.
        text: the cause in words.
        suffix: what follows the text if the reason has a number; `{}` stands for the number.
        unit: of the number; empty: none.
    """

    RUNS = (Outcome.JOINED, "it is running already", "", "")
    ARRIVAL = (Outcome.JOINED, "first in order of arrival", ", {} before it", "")
    PRIORITY = (Outcome.JOINED, "highest priority", ", {}", "")
    DEADLINE = (Outcome.JOINED, "earliest deadline", ", {} left", "s")
    ORDERED = (Outcome.JOINED, "next in the order that a search found", ", {} before it", "")
    QUEUE_LEVEL = (Outcome.JOINED, "it has run least", ", queue level {}", "")
    SERVED_LEAST = (Outcome.JOINED, "its agent was served least", ", {}", "weighted tokens")
    WORTH_MOST = (Outcome.JOINED, "worth most", ", {}", "")
    AHEAD = (Outcome.JOINED, "there is room to run ahead", ", its robot is busy for {}", "s")
    TOKEN_DUE = (Outcome.JOINED, "its next token is due", ", {} left", "s")
    COLUMN = (Outcome.JOINED, "its column of the cycle", "", "")
    PROMISED = (Outcome.JOINED, "it has a promised rate", ", {}", "tokens/s")
    SPARE = (Outcome.JOINED, "time that no promise needs", "", "")
    ALONE = (Outcome.JOINED, "nothing else can go on", "", "")

    MEMORY = (Outcome.WAITS, "memory", ", {} of KV missing", "tokens")
    ROWS = (Outcome.WAITS, "the step is full", ", {}", "rows")
    STEP_TOKENS = (Outcome.WAITS, "the step is full", ", {}", "tokens")
    ADMISSIONS = (Outcome.WAITS, "others come first", ", {} at a step", "")
    WORST_CASE = (Outcome.WAITS, "a running plan could come too late", ", it has {}", "s")
    WORTH_LESS = (Outcome.WAITS, "all are worth more if it joins later", ", it is worth {} now", "")
    BEHIND = (Outcome.WAITS, "others are before it", ", {} or more", "")
    STEP_TIME = (Outcome.WAITS, "the step would become too long", ", {} at most", "s")
    OTHER_PROMPT = (Outcome.WAITS, "the step computes another prompt", "", "")
    MICRO_BATCH = (Outcome.WAITS, "another micro-batch takes it", ", {} in the cycle", "")
    NOT_SELECTED = (Outcome.WAITS, "not selected for the cycle", ", utility rate {}", "")
    NOT_PROMISED = (Outcome.WAITS, "its rate cannot be promised", ", {}", "tokens/s")

    NOT_DUE = (Outcome.DEFERRED, "not due", " for {}", "s")
    LATER_COLUMN = (Outcome.DEFERRED, "its column of the cycle comes later", "", "")
    GATHERS = (Outcome.DEFERRED, "the rest of a burst is awaited", " for {}", "s")
    AHEAD_LIMIT = (Outcome.DEFERRED, "running ahead would delay others",
                   ", its robot is busy for {}", "s")  # fmt: skip

    def __init__(self, outcome: Outcome, text: str, suffix: str, unit: str) -> None:
        self.outcome = outcome
        self.text = text
        self.suffix = suffix
        self.unit = unit

    @property
    def joined(self) -> bool:
        """Whether the generation takes part in the step."""
        return self.outcome is Outcome.JOINED

    def describe(self, least: float | None = None, most: float | None = None) -> str:
        """Return the decision in words, such as "deferred: not due for 1.2 s".

        Args:
            least: smallest number of the decisions that are described; None: they have none.
            most: largest one; None: as `least`.
        """
        detail = ""
        if least is not None and self.suffix:
            first, last = f"{least:.3g}", f"{least if most is None else most:.3g}"
            number = first if first == last else f"{first} to {last}"
            detail = self.suffix.format(f"{number} {self.unit}".rstrip())
        return f"{self.outcome.value}: {self.text}{detail}"


class Reason(NamedTuple):
    """Why one generation takes part in a step, or does not.

    Attributes:
        cause: what decided.
        number: in the unit of the cause; None: nothing to count.
    """

    cause: Cause
    number: float | None = None

    def __str__(self) -> str:
        """Return the decision in words."""
        return self.cause.describe(self.number)

    @property
    def rounded(self) -> Reason:
        """The reason as event logs have it: its number to four digits, None if not finite."""
        number = math.nan if self.number is None else float(f"{self.number:.4g}")
        return Reason(self.cause, number if math.isfinite(number) else None)

    def as_json(self) -> list[str | float]:
        """Return the cause's name, and the number to four digits if it is finite."""
        cause, number = self.rounded
        name = cause.name.lower()
        return [name] if number is None else [name, number]


Reasons = tuple[tuple[str, Reason], ...]
"""The reasons of a step plan: (key, reason) for each generation of the pool."""


def reason_from_json(value: object) -> Reason:
    """Return the reason that an event log has as `Reason.as_json`.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, list) and 1 <= len(value) <= 2 and isinstance(value[0], str):
        cause = _CAUSES.get(value[0])
        if cause is not None and len(value) == 1:
            return Reason(cause)
        number = value[-1]
        if cause is not None and isinstance(number, int | float) and not isinstance(number, bool):
            return Reason(cause, float(number))
    raise ValueError(f"a reason is a cause and a number, such as ['not_due', 1.2], not {value!r}")


_CAUSES: Mapping[str, Cause] = {cause.name.lower(): cause for cause in Cause}
