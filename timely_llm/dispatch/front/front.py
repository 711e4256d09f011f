"""Requests for several servers: gathered, assigned, moved, and sent on when a server is lost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from timely_llm.core.errors import RequestError
from timely_llm.core.request import (
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    Result,
    StreamChunk,
    served_already,
)
from timely_llm.core.segment import Segment
from timely_llm.dispatch.contract import Dispatcher, ServerView, Waiting
from timely_llm.dispatch.front.actions import (
    Action,
    Cancel,
    Deliver,
    Finish,
    Inquire,
    Tell,
)
from timely_llm.dispatch.front.assigned import Assigned
from timely_llm.dispatch.front.delivered.answer import DeliveredAnswer
from timely_llm.dispatch.front.delivered.plan import ANSWER_S, DeliveredPlan, Executions
from timely_llm.dispatch.front.delivered.recovery import LOST, Recovery
from timely_llm.dispatch.front.placement import Returned
from timely_llm.dispatch.link import Found

ELSEWHERE = frozenset(
    {
        ErrorCode.DUPLICATE_REQUEST, ErrorCode.QUEUE_FULL, ErrorCode.AGENT_LIMIT, ErrorCode.BUSY,
        ErrorCode.INACTIVE, ErrorCode.SHUTTING_DOWN, ErrorCode.ENGINE_FAILED, ErrorCode.NO_MEMORY,
    }
)  # fmt: skip
"""Ends with which a request is sent to another server."""


class Front(Assigned):
    """Takes requests for several servers. It has no clock and no I/O.

    Each input returns the actions that follow from it. The caller carries them out in order, and
    calls `tick` at `wake_s`. A request is at one server at most, but for hedged ones: what another
    server says of it does not count (see `serves`).

    Args:
        dispatcher: the rule that assigns requests; a new one.
        recovery: words requests that go on after their server was lost.
        moves: requests that have not begun may move to another server.
        hedge: urgent plans are asked of two servers, until one of them delivers.
    """

    def __init__(
        self, dispatcher: Dispatcher, recovery: Recovery, moves: bool = True, hedge: bool = False
    ) -> None:
        super().__init__(dispatcher, moves, hedge)
        self._recovery = recovery
        self._delivered: dict[str, DeliveredPlan | DeliveredAnswer] = {}
        self._executions = Executions()

    @property
    def wake_s(self) -> float:
        """When to call `tick`, on the caller's clock; infinite: not before another input."""
        return min(self._unsent.wake_s, self._executions.wake_s)

    @property
    def open(self) -> list[str]:
        """The ids of all requests that have not ended, in order of arrival."""
        return list(self._delivered)

    def delivered(self, request_id: str) -> DeliveredPlan | DeliveredAnswer | None:
        """Return what the client of a request has got; None: it has ended."""
        return self._delivered.get(request_id)

    def is_executed(self, request_id: str) -> bool:
        """Return whether a robot executes what is left of its plan, and no server has it."""
        return self._executions.alone(request_id)

    # What clients say.

    def asked(self, waiting: Waiting, now: float) -> list[Action]:
        """Take a request. Those of a burst are assigned together (see `Unsent.gather`).

        Raises:
            Rejected: a request with its id is being served already.
        """
        self._begin(waiting)
        if not self._unsent.gathers:
            views = self._ledger.views(now)
            if not self._begins_burst(views):
                return self._assign([waiting], now, views)
        self._unsent.gather(waiting, now)
        return []

    def adopted(self, server: str, waiting: Waiting, found: Found, now: float) -> list[Action]:
        """Take a request that a server serves already.

        `waiting` has it as it was asked first, `found` as the server got it. An old run that was
        taken before ends: the dispatcher before this one had moved the request. The robot may have
        asked for segments meanwhile: it gets them now. A cancel of the old run ends this one too.
        """
        canceled = waiting.key in self._canceled
        ended = self.end(waiting.key, ErrorCode.CANCELED, "", now)
        delivered = self._begin(waiting)
        self._leftovers.drop(server, waiting.key)
        self._ledger.send(replace(waiting, request=found.request), server, now)
        delivered.adopt(found, now)
        if delivered.begun:
            self._ledger.delivered(waiting.key)
        cancels = [one for one in ended if isinstance(one, Cancel)]
        actions: list[Action] = [*cancels, *map(Deliver, found.segments)] if cancels else []
        return actions + self.cancel(waiting.key, now) if canceled else actions

    def report(self, report: ExecutionReport, now: float) -> list[Action]:
        """Take a robot's report about a request."""
        key = report.request_id
        plan, servers = self._delivered.get(key), self._servers(key)
        if plan is None or plan.waiting.request.agent != report.agent:
            return []
        if not isinstance(plan, DeliveredPlan):
            return [Tell(report, name) for name in servers]
        could = not plan.failure
        told = plan.report(report, now)
        if servers or self._executions.alone(key):
            return [*(Tell(told, name) for name in servers), *self._go_on_executed(key, now)]
        if plan.returned or (could and plan.failure):
            self._unsent.remove(key)
            return self._go_on(plan.waiting, now)
        return self._go_on_executed(key, now)

    def cancel(self, request_id: str, now: float) -> list[Action]:
        """Let a client end its request. Its end comes as `Finish`."""
        if request_id not in self._delivered:
            return []
        if not (servers := self._servers(request_id)):
            return [self._end_canceled(request_id)]
        self._canceled.add(request_id)
        if second := self._hedges.drop(request_id):
            self._leftovers.add(second, request_id, now)
        return [Cancel(request_id, name) for name in servers]

    def end(self, request_id: str, code: ErrorCode, reason: str, now: float) -> list[Action]:
        """End a request at its client, and at the servers that have it."""
        if request_id not in self._delivered:
            return []
        servers = self._servers(request_id)
        for name in servers:
            self._leftovers.add(name, request_id, now)
        self._hedges.drop(request_id)
        cancels = [Cancel(request_id, name) for name in servers]
        return [*cancels, self._end(request_id, code, reason)]

    # What time and servers say.

    def tick(self, now: float) -> list[Action]:
        """Do what is due."""
        actions = self._assign(self._unsent.take_burst(now), now)
        for one in self._unsent.take_returned(now):
            if one.waiting.key in self._canceled:
                actions.append(self._end_canceled(one.waiting.key))
            elif any(one.server == other.name for other in self._others(one.waiting, now)):
                actions.append(self._send(one.waiting, one.server, now, one.assigned))
            else:
                actions += self._assign([one.waiting], now)
        for key in self._executions.due(now):
            actions += self._go_on_executed(key, now)
            if self._executions.alone(key):
                actions.append(self._not_reported(key))
        return actions

    def heard(self, view: ServerView, made_s: float, now: float) -> list[Action]:
        """Take the view that a server made at `made_s`; a server that was lost is back.

        The requests that should move are withdrawn. That takes longest: `noted`, `to_move` and
        `moved` are its parts, for callers that do not want to have other inputs wait for it.
        """
        actions = self.noted(view, made_s, now)
        if (question := self.to_move(view, now)) is not None:
            actions += self.moved(question)
        return actions

    def noted(self, view: ServerView, made_s: float, now: float) -> list[Action]:
        """Take a view as `heard` does; no request moves from one active server to another."""
        name = view.name
        self._ledger.heard(view, made_s)
        wrong = self._leftovers.heard(view, made_s, partial(self.serves, name))
        actions: list[Action] = [Cancel(key, name) for key in wrong]
        actions += self._assign(self._unsent.take_unplaced(view), now)
        if self._moves and view.unstarted and not view.active:
            actions += self._leaving(name)
        if view.served is not None:
            actions += [Inquire(one.waiting.key, name) for one in self._ledger.missing(name, now)]
        return actions

    def withdrawn(self, request_id: str, server: str, at_s: float) -> None:
        """Record that a server gave a request back, and when the dispatcher has it again."""
        sent = self._ledger.of(request_id)
        if sent is not None and sent.server == server:
            new = self._moving.get(request_id, "")
            if not self._goes_on_with_second(request_id, server, at_s):
                assigned = self._ledger.assigned(request_id)
                self._forget(request_id)
                self._unsent.bring_back(Returned(at_s, sent.waiting, new, assigned))

    def stays(self, request_id: str, server: str) -> None:
        """Record that a server keeps a request that was to be withdrawn: it has begun."""
        if self.serves(server, request_id):
            self._moving.pop(request_id, None)

    def segment(self, server: str, segment: Segment, now: float) -> list[Action]:
        """Take a segment of a server."""
        key = segment.request_id
        plan = self._delivered.get(key)
        if not self.serves(server, key) or not isinstance(plan, DeliveredPlan):
            return []
        if plan.is_late(segment):  # nor does it end a hedge
            return []
        actions = self._won(key, server, now)
        self._ledger.delivered(key)
        shown = plan.take(segment, now)
        if not plan.held:
            self._executions.drop(key)
        return actions + [Deliver(one) for one in shown]

    def chunk(self, server: str, chunk: StreamChunk, now: float) -> list[Action]:
        """Take a token of a server."""
        answer = self._delivered.get(chunk.request_id)
        if not self.serves(server, chunk.request_id) or not isinstance(answer, DeliveredAnswer):
            return []
        self._ledger.delivered(chunk.request_id)
        return [Deliver(chunk)] if answer.take(chunk, now) else []

    def ended(self, server: str, result: Result, now: float) -> list[Action]:
        """Take the end of a request at a server; another server may do better."""
        key, code = result.request_id, result.error_code
        if not self.serves(server, key):
            self._leftovers.ended(server, key)
            return []
        if code is not ErrorCode.NONE and self._goes_on_with_second(key, server, now):
            return []
        actions = self._won(key, server, now)
        sent = self._ledger.of(key)
        assert sent is not None
        delivered = self._delivered[key]
        if key in self._canceled:
            return [*actions, self._finish(key, result)]
        if code is ErrorCode.CANCELED and key in self._moving:
            self.withdrawn(key, server, now)
            return []
        if self._executions.holds(key) and code is ErrorCode.NONE:
            assert isinstance(delivered, DeliveredPlan)
            self._forget(key)
            self._executions.leave(delivered, result)
            return actions + self._go_on_executed(key, now)
        if code is ErrorCode.UNKNOWN_SKILL_SET:  # the server was started again since its last view
            self._ledger.lacks(server, sent.waiting.plan.skill_set)
            return [*actions, *self.forgotten(key, server, now)]
        if code not in ELSEWHERE:
            return [*actions, self._finish(key, result)]
        self._forget(key)
        self._refusals.add(key, server, code)
        last = self._refusals.has_failed(key) or not self._others(sent.waiting, now)
        if last and not delivered.whole:
            return [self._finish(key, result)]
        return self._go_on(sent.waiting, now)

    def forgotten(self, request_id: str, server: str, now: float) -> list[Action]:
        """Send a request elsewhere that a server does not know any more."""
        sent = self._ledger.of(request_id)
        if sent is None or sent.server != server:
            return []
        if sent.inquired:
            self._leftovers.add(server, request_id, now)  # its message may come yet
        if self._goes_on_with_second(request_id, server, now):
            return []
        self._forget(request_id)
        return self._go_on(sent.waiting, now, runs=sent.inquired)

    def lost(self, server: str, now: float) -> list[Action]:
        """Send the requests of a server that is silent to others.

        Those that have not begun go as they were. The others go on after what was delivered: a
        plan as an urgent request; an answer from its text. All plans go with their next epoch: the
        lost server may serve them still.
        """
        self._leftovers.lost(server)
        for key in self._hedges.of(server):
            self._hedges.drop(key)
            self._leftovers.add(server, key, now)
        actions: list[Action] = []
        for sent in self._ledger.lost(server):
            key = sent.waiting.key
            self._leftovers.add(server, key, now)
            self._moving.pop(key, None)
            if second := self._hedges.drop(key):
                self._ledger.send(sent.waiting, second, now)
            else:
                actions += self._go_on(sent.waiting, now, runs=True)
        return actions

    def has_wrongly(self, server: str, request_id: str, now: float) -> None:
        """Record that a server serves a request that it should not have: it is to end it."""
        self._leftovers.add(server, request_id, now)

    # How requests go on, and how they end.

    def _begin(self, waiting: Waiting) -> DeliveredPlan | DeliveredAnswer:
        if waiting.key in self._delivered:
            raise served_already(waiting.key)
        kind = DeliveredPlan if isinstance(waiting.request, PlanRequest) else DeliveredAnswer
        self._delivered[waiting.key] = made = kind(waiting, waiting.asked_s)
        return made

    def _go_on(self, waiting: Waiting, now: float, runs: bool = False) -> list[Action]:
        """Send what is left of a request that no server has.

        Args:
            waiting: the request as its last server had it.
            now: the time on the caller's clock.
            runs: that server may serve it still.
        """
        key, delivered = waiting.key, self._delivered[waiting.key]
        plan = delivered if isinstance(delivered, DeliveredPlan) else None
        self._executions.drop(key)
        if key in self._canceled:
            return [self._end_canceled(key)]
        if delivered.whole and not (plan and plan.executes):
            return [self._end(key)]
        if not delivered.begun:
            return self._assign([plan.anew(waiting) if plan and runs else waiting], now)
        if plan and plan.executes:
            self._executions.leave(plan)
            return []
        why = (plan and plan.failure) or LOST
        if plan and plan.waiting.plan.given_plan:
            code = ErrorCode.EXECUTION_FAILED if plan.failure else ErrorCode.ENGINE_FAILED
            why = f"{why}; a plan written by hand is not replaced by one of the model's"
            return [self._end(key, code, why)]
        try:
            rest = delivered.rest(self._recovery, now)
        except RequestError as error:
            why = f"{why}; the rest could not be asked for: {error}"
            return [self._end(key, ErrorCode.ENGINE_FAILED, why)]
        if plan and plan.holds(now):
            self._executions.hold(plan)
        return self._assign([rest], now)

    def _go_on_executed(self, key: str, now: float) -> list[Action]:
        """Go on with a plan that waits for its robot, if the robot is as far."""
        plan, alone = self._delivered[key], self._executions.alone(key)
        if not isinstance(plan, DeliveredPlan) or not (alone or self._executions.holds(key)):
            return []
        result = self._executions.result(key)
        if alone and (plan.failure or (result is None and not plan.executes)):
            return self._go_on(plan.waiting, now)
        if (alone and result is None) or plan.holds(now):
            return []
        self._executions.drop(key)
        actions: list[Action] = [Deliver(one) for one in plan.release(now)]
        return actions if result is None else [*actions, self._finish(key, result)]

    def _not_reported(self, key: str) -> Finish:
        plan = self._delivered[key]
        assert isinstance(plan, DeliveredPlan)
        calls = [one.name for one in plan.segments[-1].calls if one.blocking]
        end = f"the end of segment {plan.segments[-1].index}"
        what = f"the value of {calls[-1]}" if calls else end
        why = f"its robot did not report {what} within {ANSWER_S:g} s of its predicted end"
        return self._end(key, ErrorCode.NO_ANSWER, why)

    def _end_canceled(self, key: str) -> Finish:
        return self._end(key, ErrorCode.CANCELED, "canceled by a client")

    def _end(self, key: str, code: ErrorCode = ErrorCode.NONE, reason: str = "") -> Finish:
        """End a request that no server has."""
        delivered = self._delivered[key]
        return self._finish(key, delivered.waiting.request.refused(code, reason), True)

    def _finish(self, key: str, result: Result, moved: bool = False) -> Finish:
        """Forget a request: its client gets a result, with what all servers delivered."""
        delivered = self._delivered.pop(key)
        self._forget(key)
        self._unsent.remove(key)
        self._executions.drop(key)
        self._refusals.forget(key)
        self._canceled.discard(key)
        return Finish(delivered.merged(result, moved))

    def _forget(self, key: str) -> None:
        """Record that no server has a request."""
        self._ledger.ended(key)
        self._moving.pop(key, None)
