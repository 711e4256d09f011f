"""What the engine did in a run: its steps, and which requests took part in them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

RUNNING_S = 0.15
"""A generation counts as running for this long after its last step."""
REST_S = 0.05
"""An engine that makes no step for this long rests."""


@dataclass(frozen=True)
class Step:
    """One forward pass: start and duration in seconds, and how many sequences took part."""

    start_s: float
    duration_s: float
    sequences: int

    @property
    def end_s(self) -> float:
        """When it was over."""
        return self.start_s + self.duration_s


@dataclass
class Slice:
    """An unbroken run of steps of one generation, seconds."""

    start_s: float
    end_s: float
    last_step: int

    def goes_on_with(self, step: Step, number: int) -> bool:
        """Whether a step follows with neither another one nor a rest of the engine between."""
        return self.last_step == number - 1 and step.start_s - self.end_s < REST_S


@dataclass
class Work:
    """A request as the engine sees it: of a robot or of a person.

    Attributes:
        asked_s: when it was asked for; not a number while only the server's word is known.
        due_s: when the next segment or token is needed.
        generated: nothing more is generated.
    """

    id: str
    agent: str = ""
    asked_s: float = math.nan
    due_s: float = math.nan
    steps: int = 0
    generated: bool = False
    slices: list[Slice] = field(default_factory=list)

    def generation(self, now_s: float) -> str:
        """Return queued, running, suspended or done."""
        if self.generated:
            return "done"
        if not self.slices:
            return "queued"
        return "running" if self.slices[-1].end_s > now_s - RUNNING_S else "suspended"

    def took_part(self, step: Step, number: int) -> None:
        """Enter the run's step of this number."""
        self.steps += 1
        if self.slices and self.slices[-1].goes_on_with(step, number):
            self.slices[-1].end_s = step.end_s
            self.slices[-1].last_step = number
        else:
            self.slices.append(Slice(step.start_s, step.end_s, number))
