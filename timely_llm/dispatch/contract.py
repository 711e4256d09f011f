"""The contract of dispatchers: what servers say of themselves, and what is asked of a rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from timely_llm.core.errors import RequestError
from timely_llm.core.request import PlanRequest, Request, StreamRequest
from timely_llm.core.text import quoted

MOST_DUE = 256
"""Most entries of a due list."""

KAPPA = 0.1
"""Price of an idle robot, per second, as a share of its request's worth; as in `deadline`."""

SOON_S = 1.0
"""A server rests if nothing is due in this time, seconds."""

GATHER_S = 0.0015
"""Silence that ends a burst, seconds."""

LONGEST_BURST_S = 0.02
"""Longest time for which the first request of a burst waits for the others, seconds."""

SHORTEST_S = 1e-3
"""Fall of a worth that falls at once, seconds."""

MOST = 1e9
"""Largest worth, time and rate that count: clients may ask for any, and sums stay finite."""


class Due(NamedTuple):
    """A deliverable that a server has to make.

    Its worth falls from `weight` at its due time to 0 after `grace_s` more seconds.

    Attributes:
        due_in_s: seconds until it is due, when the view was made; below 0 if it is late.
        tokens: expected tokens to go.
        weight: worth of it in time.
        grace_s: seconds after the due time in which its worth falls to 0; above 0.
        prompt_tokens: tokens of its prompt that are not computed yet.
    """

    due_in_s: float
    tokens: float
    weight: float = 1.0
    grace_s: float = 1.0 / KAPPA
    prompt_tokens: int = 0

    @property
    def slope(self) -> float:
        """Worth that each second after the due time costs."""
        return self.weight / self.grace_s


@dataclass(frozen=True)
class ServerView:
    """What a server published of itself, and what was sent to it since.

    Attributes:
        name: unique among the servers.
        steps_s: seconds of a step of 1, 2, ... rows; at least one number.
        row_s: seconds of each further row.
        prefill_token_s: seconds of a prompt token.
        kv_tokens: tokens of KV in all.
        free_kv_tokens: tokens of KV that are free, or kept for conversations.
        max_rows: most rows of a step.
        skill_sets: tokens of the pinned prefix of each registered skill set, by its name; 0: it is
            not computed yet.
        kept: tokens of KV of the kept conversations, by agent and name.
        rates: promised rates: tokens a second that the service level of each stream asks for,
            whether its policy gives them or not.
        due: what it has to make next, at most `MOST_DUE`.
        requests: requests that it serves. What a dispatcher gives its rule counts those that the
            rule assigned to the server and that have not ended, also if they moved on since.
        unstarted: ids of the requests that took part in no step yet.
        rtt_s: seconds of a message there and back.
        age_s: seconds since the server made the view.
        served: ids of the requests that it served when it made the view, in order of arrival; None:
            it does not say.
        active: it takes requests.

    Raises:
        RequestError: a step takes no time, a number is not finite or below 0, or a worth never
            falls.
    """

    name: str
    steps_s: tuple[float, ...]
    row_s: float = 0.0
    prefill_token_s: float = 0.0
    kv_tokens: int = 0
    free_kv_tokens: int = 0
    max_rows: int = 1
    skill_sets: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[tuple[str, str], int] = field(default_factory=dict)
    rates: tuple[float, ...] = ()
    due: tuple[Due, ...] = ()
    requests: int = 0
    unstarted: frozenset[str] = frozenset()
    rtt_s: float = 0.0
    age_s: float = 0.0
    served: tuple[str, ...] | None = None
    active: bool = True

    def __post_init__(self) -> None:
        numbers = (
            *self.steps_s, self.row_s, self.prefill_token_s, self.rtt_s, self.age_s, *self.rates
        )  # fmt: skip
        fine = (
            min(self.steps_s, default=0.0) > 0.0
            and min(numbers) >= 0.0
            and math.isfinite(sum(numbers))
            and self.max_rows > 0
            and all(
                one.grace_s > 0.0 <= one.tokens and one.weight >= 0.0 and math.isfinite(sum(one))
                for one in self.due
            )
        )
        if not fine:
            raise RequestError(
                f"the view of server {quoted(self.name)} has an impossible number: no time and no"
                " rate may be infinite or negative, a step must take longer than 0 s, and"
                " max_rows must be at least 1"
            )

    @property
    def rests(self) -> bool:
        """Whether the server has neither a stream nor anything that is due soon."""
        return not (self.rates or any(one.due_in_s < SOON_S for one in self.due))

    def step_s(self, rows: int) -> float:
        """Return the predicted seconds of a step of some rows, from 1 on; too many take turns."""
        known, together = len(self.steps_s), min(rows, self.max_rows)
        if together <= known:
            step_s = self.steps_s[together - 1]
        else:
            step_s = self.steps_s[-1] + (together - known) * self.row_s
        return step_s if rows == together else step_s * rows / together

    def advanced(self, seconds: float) -> Iterator[Due]:
        """Yield what is due after some seconds in which the server makes it.

        Its prompts are computed first. All that is due then gets a token in each step.
        """
        prompts_s = self.prefill_token_s * sum(one.prompt_tokens for one in self.due)
        share = max(1.0 - seconds / prompts_s, 0.0) if prompts_s else 0.0
        tokens = max(seconds - prompts_s, 0.0) / self.step_s(max(len(self.due), 1))
        for one in self.due:
            if one.tokens > tokens:
                yield Due(
                    one.due_in_s - seconds, one.tokens - tokens, one.weight, one.grace_s,
                    int(one.prompt_tokens * share),
                )  # fmt: skip


@dataclass(frozen=True)
class Waiting:
    """A request that waits for a server.

    Attributes:
        request: the request.
        asked_s: when it was asked, on the dispatcher's clock.
        prompt_tokens: expected tokens of its whole prompt.
        tokens: expected tokens of its first deliverable.
        answer_tokens: expected tokens of the whole answer.
        rate: tokens a second that a stream needs; 0 for a plan.
        terms: worth in time, seconds after asking at which it is due, and seconds of its fall to 0.
        place: its skill set, or its agent and kept conversation; empty for a new conversation.
    """

    request: Request
    asked_s: float
    prompt_tokens: int = 0
    tokens: float = 8.0
    answer_tokens: float = 40.0
    rate: float = field(init=False, repr=False, compare=False)
    terms: tuple[float, float, float] = field(init=False, repr=False, compare=False)
    place: str | tuple[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Rules read these often, and a `cached_property` takes a lock in Python 3.11.
        rate = 0.0
        place: str | tuple[str, str] = ""
        terms = 1.0, 1.0, 1.0 / KAPPA
        match self.request:
            case PlanRequest(time_utility=utility, skill_set=place):
                grace_s = min(utility.grace_s, 1.0 / KAPPA) or SHORTEST_S
                terms = min(utility.beta, MOST), min(utility.ert_s, MOST), grace_s
            case StreamRequest(slo=slo, weight=weight, agent=agent, conversation=name):
                rate = min(slo.rate, MOST)
                due_s = slo.deadline_s if slo.real_time else slo.ttft_s
                terms = weight, due_s, SHORTEST_S if slo.real_time else slo.ttft_s
                place = (agent, name) if name else ""
        for name, value in (("rate", rate), ("terms", terms), ("place", place)):
            object.__setattr__(self, name, value)

    @property
    def key(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def plan(self) -> PlanRequest:
        """The request, which is one for a plan."""
        assert isinstance(self.request, PlanRequest)
        return self.request

    @property
    def stream(self) -> StreamRequest:
        """The request, which is one for an answer."""
        assert isinstance(self.request, StreamRequest)
        return self.request

    def worth(self, response_s: float) -> float:
        """Return the worth of a first deliverable `response_s` seconds after asking.

        It is the time utility, clamped at 0, less the price of the wait, as in `deadline`.
        """
        return self.worths((response_s,))[0]

    def worths(self, responses_s: Iterable[float]) -> list[float]:
        """Return `worth` of some times; one call for all of them is faster."""
        weight, due_s, grace_s = self.terms
        price = KAPPA * (weight or 1.0)
        made = []
        for response_s in responses_s:
            in_time = 1.0 - (response_s - due_s) / grace_s
            in_time = 0.0 if in_time < 0.0 else 1.0 if in_time > 1.0 else in_time
            wait_s = response_s if response_s > 0.0 else 0.0
            made.append(weight * in_time - price * wait_s)
        return made

    def can_go_to(self, server: ServerView) -> bool:
        """Return whether a server has the skill set that the request names."""
        return self.rate > 0.0 or self.place in server.skill_sets

    def to_compute(self, server: ServerView) -> int:
        """Return the tokens of the prompt that a server has no KV of, at least 1."""
        place = self.place
        known = 0
        if isinstance(place, tuple):
            known = server.kept.get(place, 0)
        elif place:
            known = server.skill_sets.get(place, 0)
        return max(self.prompt_tokens - known, 1)

    def due(self, now: float, server: ServerView) -> Due:
        """Return the first deliverable as an entry of a server's due list."""
        weight, due_s, grace_s = self.terms
        due_in_s = self.asked_s + due_s - now
        return Due(due_in_s, self.tokens, weight, grace_s, self.to_compute(server))


class Assignment(NamedTuple):
    """The server of a request, by their names."""

    request_id: str
    server: str


class Dispatcher(Protocol):
    """Assigns requests to servers. It has no clock, no I/O and no connection to a server.

    It may keep state between calls. It must not change its arguments.
    """

    gathers: bool
    """Whether requests of a burst are assigned together while all servers are at rest."""

    def assign(
        self, now: float, waiting: Sequence[Waiting], servers: Sequence[ServerView]
    ) -> Sequence[Assignment]:
        """Return a server for each request that a server can take, in order of importance.

        Args:
            now: the time on the dispatcher's clock, seconds.
            waiting: the requests, in order of arrival.
            servers: the servers that can be reached, in any order.

        Returns:
            One entry for each request with its skill set at some server, and none for the others.
        """
        ...
