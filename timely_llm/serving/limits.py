"""Limits: of prompts, of requests being served, and of the time that a server waits."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from timely_llm.core.clock import SAME, Clock
from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.core.request import (
    ErrorCode,
    PlanRequest,
    Rejected,
    Request,
    served_already,
    unknown_skill_set,
)
from timely_llm.core.text import count_of, quoted
from timely_llm.serving.server.agent_budgets import AgentBudgets, AgentRates
from timely_llm.serving.server.ranks import Ranks

MAX_TOKEN_CHARACTERS = 8
"""Characters of a token, in the mean of a long text: texts of any language have fewer."""


@dataclass(frozen=True)
class AdmissionLimits:
    """What a loop takes on.

    Attributes:
        max_prompt_tokens: tokens of the longest prompt, the shared part included.
        constrained: allow the model only tokens that its skill set's grammar allows.
        answer_grammar: what answers in conversations keep to, in Lark's notation; None: to nothing.
    """

    max_prompt_tokens: float = math.inf
    constrained: bool = False
    answer_grammar: str | None = None

    def check_characters(self, characters: int, what: str = "the prompt") -> None:
        """Check the length of a text before it is made tokens: that would hold up steps.

        Raises:
            Rejected: it is too long.
        """
        most = MAX_TOKEN_CHARACTERS * self.max_prompt_tokens
        if characters > most:
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"{what} has {characters} characters, at most {most:g} are taken where prompts may"
                f" have {self.max_prompt_tokens:g} tokens",
            )

    def check(self, tokens: int, what: str = "the prompt") -> None:
        """Check the length of a prompt.

        Raises:
            Rejected: it is too long.
        """
        if tokens > self.max_prompt_tokens:
            raise Rejected(
                ErrorCode.INVALID_REQUEST,
                f"{what} has {tokens} tokens, at most {self.max_prompt_tokens:g} are allowed",
            )


@dataclass(frozen=True)
class RequestLimits:
    """What a server takes on.

    Attributes:
        max_requests: most requests being served at a time; an eighth of the places is kept for
            plans, and an eighth for answers.
        max_requests_per_agent: most requests of one agent being served at a time.
        max_skill_sets: most registered skill sets; each keeps its prompt in memory.
        accept_plans: take plans that were written by hand and come with their requests.
        rates: how often agents may ask, and what worth they may claim.
    """

    max_requests: int = 256
    max_requests_per_agent: int = 16
    max_skill_sets: int = 64
    accept_plans: bool = False
    rates: AgentRates = field(default_factory=AgentRates)


MOST_AGENTS = 4096
"""Agents that are remembered, beside those that have a request."""
RESERVED = 8
"""One place in eight is kept for plans, one for answers, one for known agents, one for new ones."""
DISPLACED = (
    "the server is full, and a request of a known agent, a more urgent one, or one of an agent with"
    " fewer requests took its place before it began: try later"
)


class RequestGate:
    """Counts the requests that are being served; may be used from any thread.

    *Reserved places.* Plans cannot take the last eighth of the places, nor can answers: a crowd of
    talkers refuses no robot, and a fleet no person. With fewer than eight places none is reserved.

    *Displacement.* In a full server, a request takes the place of one that had no step yet, if that
    one yields to it by its rank (`Ranks`). The newest of the requests that yield most is displaced.
    An eighth of the places, and at least one, is for newcomers: normal requests yield to as many
    urgent plans of unknown agents. What has begun is never displaced: its work would be lost. Each
    displacement makes the order better, so two agents never displace each other in turn.

    *Known agents.* An agent is known once a request of it has ended without an error. A client
    that invents a name for each request evades the limit per agent, but remains unknown: as soon as
    one agent is known, the unknown ones together cannot take the last eighth of the places, and
    what they have waiting yields, but for the newcomers' plans. A name becomes known at the price
    of one whole request. Urgency is declared by the client; the limit per agent bounds what it
    gains by that.

    Args:
        limits: when to refuse.
        clock: of the limits of rates; None: there are none.
    """

    def __init__(self, limits: RequestLimits, clock: Clock | None = None) -> None:
        self.limits = limits
        self._budgets = AgentBudgets(limits.rates, clock)
        self._lock = threading.Lock()
        self._requests: dict[str, Request] = {}  # being served
        self._waiting: set[str] = set()  # admitted, without a step
        self._displaced: set[str] = set()  # about to end, and not counted any more
        self._known: OrderedDict[str, None] = OrderedDict()  # agents, the longest unseen first
        self._skill_sets: set[str] = set()
        self._open = True
        self._closed: tuple[ErrorCode, str] | None = None

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._requests

    @property
    def is_open(self) -> bool:
        """Whether requests are let in."""
        return self._open and self._closed is None

    @property
    def requests(self) -> list[Request]:
        """The requests that were let in and have not left, in order of arrival."""
        with self._lock:
            return list(self._requests.values())

    def open(self, wide: bool) -> None:
        """Let requests in from now on, or refuse all."""
        with self._lock:
            self._open = wide

    def close(
        self, code: ErrorCode = ErrorCode.SHUTTING_DOWN, reason: str = "the server stops"
    ) -> None:
        """Refuse all requests for ever; the first reason stands."""
        with self._lock:
            self._closed = self._closed or (code, reason)

    def know(self, skill_set: str) -> None:
        """Let requests of a skill set in."""
        with self._lock:
            self._skill_sets.add(skill_set)

    def forget(self, skill_set: str) -> None:
        """Refuse requests of a skill set from now on."""
        with self._lock:
            self._skill_sets.discard(skill_set)

    def enter(self, request: Request, must: bool = False) -> str | None:
        """Let a request in, until it leaves.

        Args:
            request: the request.
            must: let it in whatever the limits are: it is being served.

        Returns:
            Id of the displaced request, which the caller ends with QUEUE_FULL; None: there is none.

        Raises:
            Rejected: it is not taken, and why.
        """
        with self._lock:
            problem, displaced = self._problem(request), None
            known = request.agent in self._known
            if problem is None and not must:
                request = self._budgets.bounded(request, known)
                problem, displaced = self._find_place(request)
            if problem is not None and not must:
                raise problem
            if not must:
                self._budgets.charge(request, known)
            self._requests[request.request_id] = request
            if displaced is not None:
                self._waiting.discard(displaced)
                self._displaced.add(displaced)
            return displaced

    def as_let_in(self, request: Request) -> Request:
        """Return a request that was let in as it counts: its worth may be bounded."""
        return self._requests.get(request.request_id, request)

    def waits(self, request_id: str) -> None:
        """Record that a request was admitted: it can be displaced until it begins."""
        with self._lock:
            if request_id in self._requests:
                self._waiting.add(request_id)

    def begun(self, request_ids: Iterable[str]) -> None:
        """Record that requests had a step or a segment: they are not displaced any more."""
        if self._waiting:
            with self._lock:
                self._waiting.difference_update(request_ids)

    def leave(self, request_id: str, well: bool = False) -> bool:
        """Record the end of a request; return whether this call ended it: one caller does.

        Args:
            request_id: the request.
            well: it ended without an error: its agent is known.
        """
        with self._lock:
            request = self._requests.pop(request_id, None)
            self._waiting.discard(request_id)
            self._displaced.discard(request_id)
            if request is not None and well:
                self._known[request.agent] = None
                self._known.move_to_end(request.agent)
                if len(self._known) > MOST_AGENTS:
                    self._known.popitem(last=False)
            return request is not None

    def _problem(self, request: Request) -> Rejected | None:
        limits, agent = self.limits, request.agent
        if self._closed:
            return Rejected(*self._closed)
        if not self._open:
            return Rejected(ErrorCode.INACTIVE, "the server is inactive: activate it first")
        if isinstance(request, PlanRequest) and request.given_plan and not limits.accept_plans:
            return Rejected(
                ErrorCode.INVALID_REQUEST,
                "this server takes no plans written by hand: leave the plan out, or start the"
                " server with the parameter accept_plans",
            )
        if isinstance(request, PlanRequest) and request.skill_set not in self._skill_sets:
            return unknown_skill_set(request.skill_set, self._skill_sets)
        if request.request_id in self._requests:
            return served_already(request.request_id)
        its_own = sum(other.agent == agent for other in self._requests.values())
        if its_own >= limits.max_requests_per_agent:
            return Rejected(
                ErrorCode.AGENT_LIMIT,
                f"{_served(its_own, f' of {quoted(agent)}')}, the most allowed for one agent",
            )
        return self._budgets.problem(agent, agent in self._known)

    def _find_place(self, request: Request) -> tuple[Rejected | None, str | None]:
        """Return why there is no place for a request, and the id of the one that it displaces."""
        served = [one for key, one in self._requests.items() if key not in self._displaced]
        crowd = self._crowd(request, served)
        if crowd is None:
            return None, None
        ranks = Ranks(served, self._known, max(self.limits.max_requests // RESERVED, 1))
        waiting = [one for one in reversed(crowd) if one.request_id in self._waiting]
        last = max(waiting, key=ranks.of, default=None)
        if last is None or ranks.of(last) <= ranks.of_new(request):
            full = len(served) >= self.limits.max_requests
            why = "the most allowed" if full else "and the places left are kept for others"
            words = f"{_served(len(served))}, {why}: try later"
            return Rejected(ErrorCode.QUEUE_FULL, words), None
        return None, last.request_id

    def _crowd(self, request: Request, served: Sequence[Request]) -> list[Request] | None:
        """Return the requests of which one must go before another fits; None: it fits."""
        most = self.limits.max_requests
        shared = most - most // RESERVED
        plan = isinstance(request, PlanRequest)
        groups = [
            (most, list(served)),
            (shared, [one for one in served if isinstance(one, PlanRequest) == plan]),
        ]
        if self._known and request.agent not in self._known:
            groups.append((shared, [one for one in served if one.agent not in self._known]))
        full = [group for limit, group in groups if len(group) >= limit]
        if not full:
            return None
        keys = [{one.request_id for one in group} for group in full]
        return [one for one in full[0] if all(one.request_id in ids for ids in keys)]


def _served(requests: int, of_agent: str = "") -> str:
    words = f"request{of_agent} is", f"requests{of_agent} are"
    return f"{count_of(requests, *words)} being served"


Verdict = tuple[ErrorCode, str]

_WAITING = (State.BLOCKED, State.EXECUTING)
"""For its robot, not the robot for it."""
_NEVER = (-math.inf, -math.inf)


@dataclass(frozen=True)
class Timeouts:
    """Times after which a request is given up, so that none stays for ever.

    Robots may live in a simulator with a clock of another rate than the loop's. Where a
    robot and this machine are both waited for, seconds count that have passed for both: nothing
    expires while the simulator stands still, and none is given up for being simulated fast.

    Attributes:
        client_timeout_s: silence of an agent that has been heard of, seconds; of a robot, seconds
            that have passed for both. An agent that never sent a sign of life, such as a replayed
            bag, is not held to it.
        answer_timeout_s: from the predicted end of a segment to the report that is waited for, a
            blocking skill's value or the end of the plan, robots' seconds.
        queue_timeout_s: from arrival to the first segment or token, and from when each next one is
            needed until it is there, seconds; of a plan, seconds that have passed for both.
        drop_late: give a request up as soon as its time utility is spent before its first segment
            (what the released code of Ling et al. 2024 does).
        max_replans: most new plans for a request with failed segments.
    """

    client_timeout_s: float = 10.0
    answer_timeout_s: float = 60.0
    queue_timeout_s: float = 120.0
    drop_late: bool = False
    max_replans: int = 2


class RequestWatchdog:
    """Remembers when each agent was heard of last, and finds the requests that timed out.

    Any client may report in any name: of agents that have no request only the `MOST_AGENTS` that
    were heard of last are remembered.

    A client that lists its open requests claims them: they then need its words, and those of
    another client of the same agent do not count. So the requests of a robot's earlier life end in
    time although the robot was started anew under the same name, and two programs of one robot do
    not end each other's requests.

    Args:
        timeouts: the times.

    Attributes:
        robot_time: how robots' time passes now.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self.timeouts = timeouts
        self.robot_time = SAME
        # On the loop's clock and the robots'. The one that was silent longest comes first.
        self._last_seen_s: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._claimed_s: dict[str, tuple[float, float]] = {}  # by request, likewise

    @property
    def agents(self) -> int:
        """Agents that are remembered."""
        return len(self._last_seen_s)

    def seen(self, agent: str, now: float) -> None:
        """Record that an agent was heard of."""
        self._last_seen_s[agent] = now, self.robot_time.to_robot(now)
        self._last_seen_s.move_to_end(agent)

    def claim(self, request_id: str, now: float) -> None:
        """Record that the client that has a request open listed it."""
        self._claimed_s[request_id] = now, self.robot_time.to_robot(now)

    def speak_for(self, request_ids: Iterable[str], now: float) -> None:
        """Record words about requests; claims are renewed, and none is made."""
        for request_id in self._claimed_s.keys() & set(request_ids):
            self.claim(request_id, now)

    def forget(self, now: float, served: Iterable[Generation] = ()) -> None:
        """Drop agents that were silent for longer than the timeouts, and the oldest of too many.

        Args:
            now: seconds on the loop's clock.
            served: the requests being served: their agents are not too many.
        """
        if self._claimed_s:
            served = list(served)
            keys = {generation.key for generation in served}
            self._claimed_s = {key: at for key, at in self._claimed_s.items() if key in keys}
        waited_s = 2 * self.timeouts.client_timeout_s
        oldest = now - waited_s, self.robot_time.to_robot(now) - waited_s
        while self._last_seen_s and _before(next(iter(self._last_seen_s.values())), oldest):
            del self._last_seen_s[next(iter(self._last_seen_s))]
        too_many = len(self._last_seen_s) - MOST_AGENTS
        if too_many > 0:
            known = {generation.request.agent for generation in served}
            others = (agent for agent in list(self._last_seen_s) if agent not in known)
            for agent in islice(others, too_many):
                del self._last_seen_s[agent]

    def deadline_s(self, generation: Generation) -> float:
        """Return when the request is given up, unless something happens before."""
        return min(
            self._silence_s(generation), self._answer_s(generation), self._queue_s(generation)
        )

    def verdict(self, generation: Generation, now: float) -> Verdict | None:
        """Return why a request is given up now, or None."""
        timeouts, agent = self.timeouts, generation.request.agent
        if now >= self._silence_s(generation):
            limit_s = timeouts.client_timeout_s
            return (
                ErrorCode.CLIENT_SILENT,
                f"nothing was heard of {quoted(agent)} for {limit_s:g} s",
            )
        if isinstance(generation, PlanGeneration) and now >= self._answer_s(generation):
            last = generation.segments[-1]
            call = next((c.name for c in reversed(last.calls) if c.blocking), "")
            what = f"the value of {call}" if call else f"the end of segment {last.index}"
            return ErrorCode.NO_ANSWER, (
                f"{quoted(agent)} did not report {what} within {timeouts.answer_timeout_s:g} s of"
                " its predicted end"
            )
        if now >= self._queue_s(generation):
            waited_s = _rate(generation) * (now - _waits_since_s(generation))
            return ErrorCode.EXPIRED, f"nothing could be made for it in {waited_s:.1f} s"
        return None

    def _silence_s(self, generation: Generation) -> float:
        limit_s = self.timeouts.client_timeout_s
        seen_s = self._last_seen_s.get(generation.request.agent, _NEVER)
        heard_s, heard_robot_s = self._claimed_s.get(generation.key, seen_s)
        # Words of long before the request are of another life of the agent.
        if heard_s < generation.arrival_s - limit_s:
            return math.inf
        end_s = max(heard_s, generation.arrival_s) + limit_s
        if self.robot_time is SAME or not isinstance(generation, PlanGeneration):
            return end_s
        robot_s = max(heard_robot_s, self.robot_time.to_robot(generation.asked_s))
        return max(end_s, self.robot_time.to_loop(robot_s + limit_s))

    def _answer_s(self, generation: Generation) -> float:
        if generation.state not in _WAITING:
            return math.inf  # as always for streams
        return generation.due_s + self.timeouts.answer_timeout_s / _rate(generation)

    def _queue_s(self, generation: Generation) -> float:
        limit_s = self.timeouts.queue_timeout_s
        end_s = _waits_since_s(generation) + limit_s / min(_rate(generation), 1.0)
        if generation.first:
            end_s = max(end_s, generation.arrival_s + limit_s)
        late = generation.first and self.timeouts.drop_late
        return min(end_s, generation.zero_s) if late else end_s


def _rate(generation: Generation) -> float:
    """Return the seconds of the waiting robot or listener in one second of the loop."""
    return generation.rate if isinstance(generation, PlanGeneration) else 1.0


def _before(seen: tuple[float, float], oldest: tuple[float, float]) -> bool:
    """Return whether it was long ago on both clocks."""
    return seen[0] < oldest[0] and seen[1] < oldest[1]


def _waits_since_s(generation: Generation) -> float:
    """Return since when the client waits for the next segment or token."""
    if isinstance(generation, PlanGeneration) and generation.first:
        return generation.asked_s
    if generation.first:
        return generation.arrival_s
    if generation.state in _WAITING:
        return math.inf
    if isinstance(generation, StreamGeneration):
        return max(generation.last_s, generation.due_s)
    return generation.due_s
