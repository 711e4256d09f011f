"""Budgets of agents: how often each may ask, and how much worth it may claim."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from timely_llm.core.clock import Clock
from timely_llm.core.request import ErrorCode, PlanRequest, Rejected, Request, StreamRequest
from timely_llm.core.slo import TEXT
from timely_llm.core.text import quoted
from timely_llm.core.time_utility import NORMAL, URGENT, TimeUtility

log = logging.getLogger(__name__)
MOST_BUCKETS = 4096
"""Buckets that are remembered. A full bucket needs no memory."""
MINUTE_S = 60.0
_ROUNDING_S = 1e-9
_ALL = ""  # a key that no agent has


@dataclass(frozen=True)
class AgentRates:
    """Budgets of agents; the parameters of the nodes have the same names.

    Attributes:
        agent_requests_per_s: requests a second of one agent; 0: no limit of rates at all.
        agent_burst: requests that an agent may send at once after a pause.
        new_agents_requests_per_s: requests a second of all agents together that are not known.
        new_agents_burst: requests that these may send at once after a pause.
        agent_worth_per_min: worth above the default that one agent may claim in a minute; all
            agents that are not known claim together as much as one. 0: no limit.
    """

    agent_requests_per_s: float = 0.0
    agent_burst: int = 10
    new_agents_requests_per_s: float = 4.0
    new_agents_burst: int = 64
    agent_worth_per_min: float = 0.0


def agent_rates(values: Mapping[str, Any]) -> AgentRates:
    """Return the budgets in the values of a node's parameters."""
    return AgentRates(**{one.name: values[one.name] for one in fields(AgentRates)})


class TokenBuckets:
    """Token buckets by name, all of one size; each is full at first.

    A bucket is one number: when it will be full again. So a full bucket needs no memory.

    Args:
        rate: tokens a second that flow into each, above 0.
        burst: tokens of a full bucket.
        most: buckets that are remembered; the one unused longest is forgotten first.
    """

    def __init__(self, rate: float, burst: float, most: int = MOST_BUCKETS) -> None:
        self._rate = rate
        self._burst = burst
        self._most = most
        self._full_s: OrderedDict[str, float] = OrderedDict()  # the one unused longest first

    def __len__(self) -> int:
        return len(self._full_s)

    def wait_s(self, name: str, now: float, tokens: float = 1.0) -> float:
        """Return the seconds until a bucket has some tokens; infinite: it never has as many."""
        if tokens > self._burst:
            return math.inf
        empty_s = max(self._full_s.get(name, now) - now, 0.0)
        wait_s = empty_s - (self._burst - tokens) / self._rate
        return wait_s if wait_s > _ROUNDING_S else 0.0

    def take(self, name: str, now: float, tokens: float = 1.0) -> None:
        """Take tokens that are there."""
        full_s = max(self._full_s.get(name, now), now) + tokens / self._rate
        self._full_s[name] = full_s
        self._full_s.move_to_end(name)
        while len(self._full_s) > self._most or next(iter(self._full_s.values())) <= now:
            self._full_s.popitem(last=False)


class AgentBudgets:
    """What agents may still ask for; the caller has a lock.

    A request takes from the budget of its agent. A request of an agent that is not known also
    takes from one budget of all such agents: a new name brings no new budget.

    Args:
        rates: the budgets.
        clock: of all calls; None: there is no limit.
    """

    def __init__(self, rates: AgentRates, clock: Clock | None) -> None:
        self._rates = rates
        self._clock = clock
        self._own = self._new = self._worth = None
        self._bounded = 0
        if clock is not None and rates.agent_requests_per_s > 0.0:
            self._own = TokenBuckets(rates.agent_requests_per_s, rates.agent_burst)
            if rates.new_agents_requests_per_s > 0.0:
                self._new = TokenBuckets(rates.new_agents_requests_per_s, rates.new_agents_burst)
        if clock is not None and rates.agent_worth_per_min > 0.0:
            worth = rates.agent_worth_per_min
            self._worth = TokenBuckets(worth / MINUTE_S, worth)

    @property
    def buckets(self) -> int:
        """Buckets that are remembered."""
        return sum(len(one) for one in (self._own, self._new, self._worth) if one is not None)

    def problem(self, agent: str, known: bool) -> Rejected | None:
        """Return why an agent may not ask now; None: it may.

        Args:
            agent: that asks.
            known: whether a request of it has ended well.
        """
        own_s = self._own.wait_s(agent, self._now) if self._own is not None else 0.0
        new_s = 0.0
        if self._new is not None and not known:
            new_s = self._new.wait_s(_ALL, self._now)
        if own_s >= new_s > 0.0 or own_s > 0.0 == new_s:
            rate, whom = self._rates.agent_requests_per_s, quoted(agent)
            return _too_fast(f"requests of {whom} come", rate, "for one agent", own_s)
        if new_s > 0.0:
            rate = self._rates.new_agents_requests_per_s
            which = "requests of agents of which none has ended well come"
            return _too_fast(which, rate, "for all of these together", new_s)
        return None

    def bounded(self, request: Request, known: bool) -> Request:
        """Return a request as it counts: with the default worth if its agent claimed too much."""
        claim = claim_of(request)
        if self._worth is None or not claim:
            return request
        names = (request.agent,) if known else (request.agent, _ALL)
        if all(self._worth.wait_s(name, self._now, claim) == 0.0 for name in names):
            return request
        self._bounded += 1
        if math.log10(self._bounded).is_integer():
            log.warning(
                "request %s of %s counts with the default worth: it claims %.3g, and its agent may"
                " claim %g in a minute (%d such requests so far)",
                quoted(request.request_id), quoted(request.agent), claim,
                self._rates.agent_worth_per_min, self._bounded,
            )  # fmt: skip
        return with_default_worth(request)

    def charge(self, request: Request, known: bool) -> None:
        """Take a request that is let in from the budgets."""
        now, agent = self._now, request.agent
        if self._own is not None:
            self._own.take(agent, now)
        if self._new is not None and not known:
            self._new.take(_ALL, now)
        if self._worth is not None and (claim := claim_of(request)):
            self._worth.take(agent, now, claim)
            if not known:
                self._worth.take(_ALL, now, claim)

    @property
    def _now(self) -> float:
        return self._clock.now() if self._clock is not None else 0.0


def claim_of(request: Request) -> float:
    """Return the worth that a request claims; 0: no more than the default.

    It is the largest of these ratios: the worth to the default worth, and each default time to the
    request's. Times to a first segment or token below those of `URGENT` count as those. An answer
    with a deadline claims 1 at least.
    """
    claim = least = 0.0
    if isinstance(request, PlanRequest):
        utility = request.time_utility
        claim = max(
            utility.beta / NORMAL.beta,
            NORMAL.ert_s / max(utility.ert_s, URGENT.ert_s),
            NORMAL.zero_s / max(utility.zero_s, URGENT.zero_s),
        )
    elif isinstance(request, StreamRequest):
        slo = request.slo
        least = float(slo.real_time)
        claim = max(
            request.weight / TEXT.weight,
            TEXT.slo.ttft_s / max(slo.ttft_s, URGENT.ert_s),
            TEXT.slo.tpot_s / slo.tpot_s,
            NORMAL.zero_s / max(slo.deadline_s, URGENT.zero_s),
        )
    return max(claim, least) if claim > 1.0 + _ROUNDING_S else least


def with_default_worth(request: Request) -> Request:
    """Return a request that claims no more than the default; what claims less stays."""
    if isinstance(request, PlanRequest):
        utility = request.time_utility
        beta = min(utility.beta, NORMAL.beta)
        grace_s = max(utility.grace_s, NORMAL.grace_s)
        ert_s = max(utility.ert_s, NORMAL.ert_s)
        return replace(request, time_utility=TimeUtility(beta, -beta / grace_s, ert_s))
    if isinstance(request, StreamRequest):
        slo = replace(
            request.slo,
            ttft_s=max(request.slo.ttft_s, TEXT.slo.ttft_s),
            tpot_s=max(request.slo.tpot_s, TEXT.slo.tpot_s),
            deadline_s=math.inf,
        )
        return replace(request, slo=slo, weight=min(request.weight, TEXT.weight))
    return request


def _too_fast(what: str, rate: float, limit: str, wait_s: float) -> Rejected:
    wait_s = math.ceil(wait_s * 100.0) / 100.0
    words = f"{what} faster than {rate:g} a second, the most allowed {limit}"
    return Rejected(ErrorCode.AGENT_LIMIT, f"{words}: ask again in {wait_s:g} s", wait_s)
