"""Plans that were written by hand: their segments, and when they are due. No engine sees them."""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.generation import PlanGeneration, State
from timely_llm.core.segment import Segment
from timely_llm.serving.delivery import PlanDelivery, event_of
from timely_llm.serving.failures import Failures
from timely_llm.serving.pool import Pool
from timely_llm.skills.checkers import cut

if TYPE_CHECKING:
    from timely_llm.engines.contract import Tokenizer
    from timely_llm.skills.skill_set import SkillSet
    from timely_llm.skills.stop_checker import Piece, StopChecker


log = logging.getLogger(__name__)
LEAD_S = 0.5
"""Default seconds before a robot will be idle at which its next segment goes out."""
_RESTING = (State.BLOCKED, State.EXECUTING, State.ENDED)


class GivenDelivery(PlanDelivery):
    """Checks the whole plan that came with a request, then hands it out segment by segment.

    Tool output, which follows blocking calls in the examples of a prompt, is left out: the robot
    reports what a skill returned.

    Args:
        generation: the generation, which this object keeps up to date.
        tokenizer: as for a model's text; not used.
        checker: finds the boundaries; a fresh one.
        whole: keep segments back only after a blocking call.
        skill_set: what the robot can do.

    Raises:
        PlanError: the text is no plan; what is wrong and where.
    """

    def __init__(
        self,
        generation: PlanGeneration,
        tokenizer: Tokenizer,
        checker: StopChecker,
        whole: bool,
        skill_set: SkillSet,
    ) -> None:
        super().__init__(generation, tokenizer, checker, whole)
        self._skill_set = skill_set
        self._unread = generation.request.given_plan
        cut(skill_set, self._unread)
        self._pieces: deque[Piece] = deque()
        self._tail = ""
        self._ended = False

    def due_s(self, lead_s: float) -> float:
        """Return when the next segment goes out, on the loop's clock; -inf: at once.

        Args:
            lead_s: seconds before the robot will be idle.
        """
        generation = self.generation
        if self._whole or generation.first:
            return -math.inf
        return generation.due_s - lead_s

    def go_on(self, now: float) -> list[Segment]:
        """Return the next segment, or the last one once more, marked final.

        Raises:
            PlanError: the text is no plan after all.
        """
        if not self._pieces:
            self._read()
        if not self._pieces:
            self.complete = True
            return self._last_again(self._tail)
        piece = self._pieces.popleft()
        self.complete = self._ended and not self._pieces
        if self.complete:
            piece = replace(piece, text=piece.text + self._tail)
        else:
            self.generation.state = State.BLOCKED if piece.blocking else State.SUSPENDED
        return self._deliver([piece], now)

    def _read(self) -> None:
        """Read up to the next blocking call, or to the end."""
        pieces = self._checker.feed(self._unread)
        rest = self._checker.rest
        self._unread = rest[len(self._skill_set.tool_output(rest)) :]
        if not pieces or not pieces[-1].blocking:
            last, self._tail = self._checker.finish()
            pieces += [last] if last else []
            self._ended = True
        self._pieces.extend(pieces)


class GivenPlans:
    """Hands out the segments of given plans that are due; no policy sees them, and no engine.

    A segment costs nothing, so it is never late for want of room: the first goes out at once, each
    later one shortly before its robot will be idle.

    Args:
        pool: the requests being served.
        events: takes the segments.
        lead_s: how long before the robot will be idle; infinite: at once.
    """

    def __init__(self, pool: Pool, events: list[RunEvent], lead_s: float) -> None:
        self._pool = pool
        self._events = events
        self._lead_s = lead_s
        self._undelivered = Failures(log, "the segments of a given plan could not be delivered")

    def hand_out(self, now: float) -> float:
        """Deliver what is due; return when to look again at the latest."""
        wake_s = math.inf
        for delivery in list(self._pool.values()):
            if isinstance(delivery, GivenDelivery):
                wake_s = min(wake_s, self._go_on(delivery, now))
        return wake_s

    def _go_on(self, delivery: GivenDelivery, now: float) -> float:
        """Deliver what is due of one plan; its failure ends no other plan."""
        generation = delivery.generation
        try:
            while generation.state not in _RESTING:
                generation.overrun(now)
                due_s = delivery.due_s(self._lead_s)
                if now < due_s and not self._pool.draining:
                    return due_s
                for segment in delivery.go_on(now):
                    self._events.append(event_of(segment, generation, now))
                if delivery.complete:
                    self._pool.complete(generation)
        except Exception as error:
            self._pool.end_unread(generation, error, self._undelivered)
        return math.inf
