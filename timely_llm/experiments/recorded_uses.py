"""Requests of a recording: an id that was used more than once is several of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Generic

from timely_llm.core.request import ErrorCode
from timely_llm.experiments.recorded_about import About, Asked, Ended, Line
from timely_llm.experiments.recorded_messages import Heard


@dataclass(frozen=True)
class Use(Generic[Line]):
    """One request of those that had an id, and what is said of it.

    Attributes:
        request_id: its own.
        id: unique in the recording.
        asked: when it arrived; the message is None where a trace's line alone says what it was.
    """

    request_id: str
    id: str
    asked: Asked
    about: About[Line]

    @property
    def ended(self) -> Ended | None:
        """How it ended, if that was recorded."""
        # A second request of the same id was refused while the first was served: not its end.
        ends = (e for e in self.about.ended if e.error_code != ErrorCode.DUPLICATE_REQUEST)
        return next(ends, None)


def uses(abouts: Mapping[str, About[Line]], heard: Heard) -> tuple[list[Use[Line]], int]:
    """Return requests in order of arrival, and of how many ids nobody knows what was asked."""
    made: list[Use[Line]] = []
    unknown = 0
    for name, about in abouts.items():
        mine = list(_uses(name, about, heard))
        unknown += not mine and bool(about.delivered or about.ended)
        made += mine
    return sorted(made, key=attrgetter("asked.time_ns")), unknown


def _uses(name: str, about: About[Line], heard: Heard) -> Iterator[Use[Line]]:
    """Yield what is said of each request that had this id, one after the other."""
    about.sort()
    arrivals: list[Asked] = about.taken or about.sent or _refused(about)
    bounds_ns = [0, *(later.time_ns for later in arrivals[1:]), sys.maxsize]
    for number, (asked, bounds) in enumerate(zip(arrivals, pairwise(bounds_ns), strict=False)):
        unique = f"{name}+{number}" if number else name
        while number and (unique in heard.requests or unique in heard.streams):
            unique += "+"
        yield Use(name, unique, asked, about.between(*bounds))


def _refused(about: About[Line]) -> list[Asked]:
    """Return a request that was refused, where a trace's line says what it was."""
    known = about.line is not None and not about.delivered
    return [Asked(end.time_ns, None) for end in about.ended[:1] if known]
