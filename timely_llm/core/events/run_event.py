"""What all events have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

CARRIED = {"carried": True}
"""Metadata of a field that stays in the process: event logs lack it, and `==` ignores it."""


_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def run_event(cls: type[_T]) -> type[_T]:
    """Make a class of events.

    It is frozen for the type checker only: a real frozen class is slower, and each token makes an
    event.
    """
    return dataclass(slots=True)(cls)


@run_event
class RunEvent:
    """Something that happened in a run.

    Attributes:
        t: when, seconds on the writer's clock. In a file: the machine's monotonic clock.
    """

    t: float
