"""What must hold after every event of a history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from timely_llm.core.request import (
    ErrorCode,
    PlanRequest,
    PlanResult,
    Request,
    Result,
    StreamChunk,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.segment import Segment
from timely_llm.dispatch.front.delivered.answer import DeliveredAnswer
from timely_llm.dispatch.front.delivered.plan import DeliveredPlan
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

SILENT_S = 5.5
"""The answer of a client that died ends at the latest after this time where nothing happens to
servers, seconds: `client_timeout_s`, and the time of messages."""


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
    """What the client of a request got.

    Attributes:
        orphaned: what served it died, and the next one does not know the request yet.
        lost: its client has given it up since no dispatcher knew it.
        heard: its client has shown since its beginning that it lives.
        first_token: of the newest run of an answer at a server.
        behind: a new dispatcher goes on with an old run of it, for now.
        again: segments that a new process may deliver once more, by epoch and index.
    """

    request: Request
    at_s: float
    texts: dict[tuple[int, int], str] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)
    epoch: int = 0
    tokens: list[str] = field(default_factory=list)
    first_token: int = 0
    canceled_s: float | None = None
    result: Result | None = None
    orphaned: bool = False
    lost: bool = False
    heard: bool = False
    behind: bool = False
    again: set[tuple[int, int]] = field(default_factory=set)


class Checks:
    """Follows all requests from their acceptance to their end; a sink of the dispatcher.

    Args:
        calm: nothing happens to servers and their network.
    """

    def __init__(self, calm: bool) -> None:
        self._calm = calm
        self._cancel_s = CALM_CANCEL_S if calm else CANCEL_S
        self._died_s: dict[str, float] = {}
        self._unwanted: set[str] = set()  # served though their clients are gone
        self.stories: dict[str, Story] = {}
        self._executed: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
        self._failed: dict[str, int] = {}
        self._late_s: dict[str, dict[str, float]] = {}  # since when, by server and request

    @property
    def open(self) -> list[Story]:
        """The requests that have neither ended nor been given up."""
        return [one for one in self.stories.values() if one.result is None and not one.lost]

    # What clients get.

    def accepted(self, request: Request, now: float) -> None:
        """Take a request that was accepted."""
        key = request.request_id
        ensure(key not in self.stories, "an id is served once", f"{key} was accepted again")
        self.stories[key] = Story(request, now)

    def began(self, request: Request) -> None:
        """Take a run of a request at a server."""
        story = self.stories.get(request.request_id)
        if story is not None and isinstance(request, StreamRequest):
            story.first_token = max(story.first_token, request.first_token)

    def segment(self, segment: Segment) -> None:
        """Take a segment on its way to its robot."""
        if segment.request_id in self._unwanted:
            return
        story = self._story(segment.request_id, "a segment")
        place = segment.epoch, segment.index
        if place in story.again or (story.behind and segment.epoch < story.epoch):
            story.again.discard(place)  # a new dispatcher delivers it again, or an old run
            return
        what = f"segment {segment.epoch}/{segment.index} of {segment.request_id}"
        ensure(segment.epoch >= story.epoch, "epochs only grow", f"{what} follows {story.epoch}")
        story.epoch = segment.epoch
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
        if chunk.request_id in self._unwanted:
            return
        story = self._story(chunk.request_id, "a token")
        if story.behind:
            return  # a token of an old run
        ensure(
            chunk.index == len(story.tokens),
            "tokens come once and in order",
            f"token {chunk.index} of {chunk.request_id} follows {len(story.tokens)} tokens",
        )
        story.tokens.append(chunk.text)

    def ended(self, result: Result) -> None:
        """Take the result of a request."""
        if result.request_id in self._unwanted:
            self._unwanted.remove(result.request_id)
            return
        story = self._story(result.request_id, "a result")
        story.result = result
        if story.behind:
            return
        if isinstance(result, PlanResult) and result.error_code is ErrorCode.NONE:
            last = [text for (epoch, _), text in story.texts.items() if epoch == result.epoch]
            ensure(
                "".join(last) == result.plan,
                "no segment is lost",
                f"{result.request_id} ended with {result.plan!r}, delivered {last}",
            )
        if isinstance(result, StreamResult) and result.error_code is ErrorCode.NONE:
            text = "".join(story.tokens)
            ensure(
                text == result.text,
                "no token is lost",
                f"{result.request_id} ended with {len(result.text)} characters, delivered were"
                f" {len(text)}",
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

    def canceled(self, request_id: str, now: float) -> None:
        """Take a client's cancel that arrives; it counts if the dispatcher knows the request."""
        story = self.stories.get(request_id)
        if story is None or story.orphaned or story.result is not None or story.lost:
            return
        if story.canceled_s is None:
            story.canceled_s = now

    # A dispatcher that dies, and clients that do.

    def orphan(self) -> None:
        """Record that what serves clients died; the cancels that it got died with it."""
        for story in self.open:
            story.orphaned, story.canceled_s = True, None

    def adopted(self, request: Request, delivered: DeliveredPlan | DeliveredAnswer) -> None:
        """Take a request that a new dispatcher goes on with, and what it counts as delivered."""
        story = self.stories[request.request_id]
        story.orphaned = False
        if story.lost or story.result is not None:
            self._unwanted.add(request.request_id)  # its client is gone; no dispatcher knows that
        elif isinstance(delivered, DeliveredAnswer) and isinstance(request, StreamRequest):
            # The server of the newer run may answer yet.
            story.behind = request.first_token < story.first_token
            if not story.behind:
                self._adopted_answer(story, delivered)
        elif isinstance(delivered, DeliveredPlan):
            self._adopted_plan(story, delivered.waiting.plan, delivered.segments)

    def _adopted_answer(self, story: Story, delivered: DeliveredAnswer) -> None:
        first, known = delivered.waiting.stream.first_token, len(story.tokens)
        ensure(
            known <= first + delivered.count,
            "a new dispatcher knows what was delivered",
            f"{delivered.waiting.key} has {delivered.count} tokens from {first} on, delivered were"
            f" {known}",
        )
        story.tokens[first:] = [delivered.text, *[""] * (delivered.count - 1)][: delivered.count]

    def _adopted_plan(self, story: Story, plan: PlanRequest, segments: Sequence[Segment]) -> None:
        epoch = segments[-1].epoch if segments else plan.epoch
        key, texts = plan.request_id, {(one.epoch, one.index): one.text for one in segments}
        story.behind = epoch < story.epoch  # the server with the newer epoch may answer yet
        story.again = set(texts)
        delivered = {place: text for place, text in story.texts.items() if place[0] == epoch}
        ensure(
            all(texts.get(place, "").startswith(text) for place, text in delivered.items()),
            "a new dispatcher knows what was delivered",
            f"{key} has {texts}, delivered were {delivered}",
        )
        story.epoch = max(epoch, story.epoch)
        story.texts |= texts
        story.whole |= {one.epoch for one in segments if one.final}

    def resuming(self, saved: Collection[str]) -> None:
        """Take the requests that a server without a dispatcher has found in its journal."""
        for key in saved:
            story = self.stories.get(key)
            if story is None:
                continue  # it was recorded, and the server died before it accepted it
            story.orphaned = False
            story.again = {place for place in story.texts if place[0] == story.epoch}
            if story.lost or story.result is not None:
                self._unwanted.add(key)  # its client is gone, or its end comes twice

    def resumed(self, name: str, emptied: bool) -> None:
        """Check that a server goes on with what the one before had accepted.

        Args:
            name: the server's.
            emptied: a full disk has ended its journal, or it is of another release.
        """
        for story in self.open:
            if story.orphaned:
                ensure(
                    emptied,
                    "a server goes on with the requests of its journal",
                    f"{story.request.request_id} is lost at {name}",
                )
                story.lost = True

    def fetched(self, result: Result) -> None:
        """Take a result for which a client has asked a new dispatcher."""
        story = self.stories.get(result.request_id)
        if story is None or story.result is not None:
            return
        if not (story.orphaned or story.lost):
            self._unwanted.add(result.request_id)  # the dispatcher serves it, as a server reported
        story.result, story.orphaned = result, False

    def lost(self, request: Request, served_by: Sequence[str]) -> None:
        """Record that a client gives a request up.

        Args:
            request: the request.
            served_by: servers that serve it, and that the dispatcher has asked for requests.
        """
        ensure(
            not served_by,
            "a new dispatcher goes on with the requests of servers",
            f"{request.request_id} is lost for its client, and served by {served_by}",
        )
        story = self.stories.get(request.request_id)
        if story is not None:
            story.lost = True
            self._unwanted.add(request.request_id)

    def alive(self, agent: str) -> None:
        """Take a client's sign of life."""
        for story in self.open:
            story.heard |= story.request.agent == agent

    def died(self, agent: str, now: float) -> None:
        """Take the death of a client."""
        self._died_s[agent] = now

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
        kept_tokens = {
            one.key: one.progress.kv_tokens for one in server.loop.conversations.kept.values()
        }
        # The server does not know yet that the engine has lost a kept conversation.
        lost = sum(kept_tokens[key] for key in kept_tokens.keys() - set(engine.keys))
        free, most = server.loop.free_kv_tokens - lost, engine._sequences.limits.kv_tokens
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
        known = {one.request.request_id for one in self.open if not one.orphaned}
        ensure(
            gate == set(front.open),
            "gates add up",
            f"the dispatcher lets in {sorted(gate)}, and serves {sorted(front.open)}",
        )
        ensure(
            gate - self._unwanted == known,
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
        self._check_times(now)

    def alone(self, name: str, server: TurnedServer, now: float) -> None:
        """Check a server without a dispatcher after a turn."""
        gate = server.request_ids
        known = {one.request.request_id for one in self.open if not one.orphaned}
        ensure(
            gate - self._unwanted == known,
            "every accepted request has one result or is served",
            f"{name} serves {sorted(gate)}, without result are {sorted(known)}",
        )
        self._check_times(now)

    def _check_times(self, now: float) -> None:
        """Check that requests end in time."""
        for story in self.open:
            key, age_s = story.request.request_id, now - story.at_s
            ensure(age_s < LONGEST_S, "every request ends", f"{key} is served for {age_s:.0f} s")
            self._check_silence(story, now)
            ended = story.canceled_s is None or now < story.canceled_s + self._cancel_s
            ensure(ended, "a canceled request ends", f"{key} goes on after its cancel")

    def _check_silence(self, story: Story, now: float) -> None:
        """Check that the answer of a client that died ends; a plan may be in a simulator's time."""
        died_s = self._died_s.get(story.request.agent)
        if died_s is None or not (self._calm and story.heard):
            return
        ensure(
            now < died_s + SILENT_S or isinstance(story.request, PlanRequest),
            "nothing is made for a client that died",
            f"{story.request.request_id} is served {now - died_s:.2f} s after the client's end",
        )
