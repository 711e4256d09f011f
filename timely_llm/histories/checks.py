"""What must hold after every event of a history."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from timely_llm.core.request import ErrorCode, PlanResult, Request, Result, StreamChunk
from timely_llm.core.segment import Segment
from timely_llm.dispatch.relay import Relay
from timely_llm.histories.engine import FailingEngine
from timely_llm.histories.turned_server import TurnedServer
from timely_llm.serving.loop import WATCH_S

LONGEST_S = 240.0
"""A request ends at the latest after this time, seconds: the timeouts of all its epochs."""

CANCEL_S = 12.0
"""A canceled request ends at the latest after this time, seconds, whatever hits its server."""

CALM_CANCEL_S = 0.5
"""The same where nothing happens to servers and their network, seconds."""


class BrokenError(BaseException):
    """An invariant does not hold. It is no `Exception`, which a server under test may handle.

    Attributes:
        invariant: which one, the same words whatever request it is about.
    """

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


def ensure(holds: bool, invariant: str, detail: str) -> None:
    """Check one invariant.

    Raises:
        BrokenError: it does not hold.
    """
    if not holds:
        raise BrokenError(invariant, detail)


@dataclass
class Story:
    """What the client of a request got."""

    request: Request
    at_s: float
    texts: dict[tuple[int, int], str] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)
    epoch: int = 0
    tokens: int = 0
    canceled_s: float | None = None
    result: Result | None = None


class Checks:
    """Follows all requests from their acceptance to their end; a sink of the dispatcher.

    Args:
        calm: nothing happens to servers and their network.
    """

    def __init__(self, calm: bool) -> None:
        self._cancel_s = CALM_CANCEL_S if calm else CANCEL_S
        self.stories: dict[str, Story] = {}
        self._executed: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
        self._failed: dict[str, int] = {}
        self._late_s: dict[str, dict[str, float]] = {}  # since when, by server and request

    @property
    def open(self) -> list[Story]:
        """The requests that have not ended."""
        return [one for one in self.stories.values() if one.result is None]

    # What clients get.

    def accepted(self, request: Request, now: float) -> None:
        """Take a request that was accepted."""
        key = request.request_id
        ensure(key not in self.stories, "an id is served once", f"{key} was accepted again")
        self.stories[key] = Story(request, now)

    def segment(self, segment: Segment) -> None:
        """Take a segment on its way to its robot."""
        story = self._story(segment.request_id, "a segment")
        what = f"segment {segment.epoch}/{segment.index} of {segment.request_id}"
        ensure(segment.epoch >= story.epoch, "epochs only grow", f"{what} follows {story.epoch}")
        story.epoch = segment.epoch
        place = segment.epoch, segment.index
        if place in story.texts:
            again = segment.final and segment.epoch not in story.whole
            ensure(
                again and story.texts[place] == segment.text,
                "a segment is delivered once",
                f"{what} came twice",
            )
        else:
            before = place[1] == 0 or (place[0], place[1] - 1) in story.texts
            ensure(before, "no segment is lost", f"{what} came without the one before it")
        story.texts[place] = segment.text
        if segment.final:
            story.whole.add(segment.epoch)

    def chunk(self, chunk: StreamChunk) -> None:
        """Take a token on its way to its listener."""
        story = self._story(chunk.request_id, "a token")
        ensure(
            chunk.index == story.tokens,
            "tokens come once and in order",
            f"token {chunk.index} of {chunk.request_id} follows {story.tokens} tokens",
        )
        story.tokens += 1

    def ended(self, result: Result) -> None:
        """Take the result of a request."""
        story = self._story(result.request_id, "a result")
        story.result = result
        if isinstance(result, PlanResult) and result.error_code is ErrorCode.NONE:
            last = [text for (epoch, _), text in story.texts.items() if epoch == result.epoch]
            ensure(
                "".join(last) == result.plan,
                "no segment is lost",
                f"{result.request_id} ended with {result.plan!r}, delivered {last}",
            )

    def executed(self, request_id: str, epoch: int, index: int) -> None:
        """Take a segment that a robot begins to execute."""
        done = self._executed[request_id]
        ensure(
            (epoch, index) not in done,
            "a segment is executed once",
            f"segment {epoch}/{index} of {request_id} began twice",
        )
        ensure(
            epoch > self._failed.get(request_id, -1),
            "a failed epoch is not executed",
            f"segment {epoch}/{index} of {request_id} began after a failure",
        )
        done.add((epoch, index))

    def failed(self, request_id: str, epoch: int) -> None:
        """Take a segment that a robot fails to execute."""
        self._failed[request_id] = epoch

    def _story(self, request_id: str, what: str) -> Story:
        story = self.stories.get(request_id)
        ensure(
            story is not None,
            "only accepted requests are served",
            f"{what} came of {request_id}, which was not accepted",
        )
        assert story is not None
        ensure(
            story.result is None,
            "a request ends once, and nothing comes after its end",
            f"{what} came of {request_id} after its result",
        )
        return story

    # What servers and the dispatcher hold.

    def server(
        self, name: str, server: TurnedServer, engine: FailingEngine, began_s: float
    ) -> None:
        """Check a server after a turn that began at `began_s`, seconds of its clock."""
        served = {one.key: one for one in server.loop.generations}
        gate = server.request_ids
        ensure(
            gate == served.keys(),
            "gates add up",
            f"{name} lets in {sorted(gate)}, and serves {sorted(served)}",
        )
        kept = server.loop.kept_conversations
        ensure(
            len(engine.keys) <= len(served) + kept,
            "KV is conserved",
            f"{name} holds the KV of {engine.keys}, serves {sorted(served)}, keeps {kept}",
        )
        free, most = server.loop.free_kv_tokens, engine._sequences.limits.kv_tokens
        ensure(0 <= free <= most, "KV is conserved", f"{name} has {free} of {most} tokens free")
        known_s, deadline_s = self._late_s.get(name, {}), server.loop._watchdog.deadline_s
        late = [key for key, one in served.items() if began_s - WATCH_S > deadline_s(one)]
        self._late_s[name] = {key: known_s.get(key, began_s) for key in late}
        for key, since_s in self._late_s[name].items():
            late_s = began_s - since_s  # a clock that leaps ends timeouts at once
            ensure(
                late_s <= WATCH_S,
                "no request outlives its timeouts",
                f"{key} at {name} should have ended, and is served for {late_s:.2f} s more",
            )

    def relay(self, relay: Relay, now: float) -> None:
        """Check the dispatcher after an event."""
        front = relay._front
        gate = {request.request_id for request in relay._gate.requests}
        known = {one.request.request_id for one in self.open}
        ensure(
            gate == set(front.open),
            "gates add up",
            f"the dispatcher lets in {sorted(gate)}, and serves {sorted(front.open)}",
        )
        ensure(
            gate == known,
            "every accepted request has one result or is served",
            f"the dispatcher serves {sorted(gate)}, without result are {sorted(known)}",
        )
        waiting = front.waiting
        for key in front.open:
            places = (front.server_of(key) is not None) + (key in waiting) + front.is_executed(key)
            ensure(
                places == 1,
                "a request is in one place",
                f"{key} is in {places} places of the dispatcher",
            )
        for story in self.open:
            key, age_s = story.request.request_id, now - story.at_s
            ensure(age_s < LONGEST_S, "every request ends", f"{key} is served for {age_s:.0f} s")
            ended = story.canceled_s is None or now < story.canceled_s + self._cancel_s
            ensure(ended, "a canceled request ends", f"{key} goes on after its cancel")
