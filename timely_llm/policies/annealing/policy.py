"""The policies `annealing` and `sjf`: whole requests in a predicted order (Huang et al. 2025)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.annealing.branches import branch
from timely_llm.policies.annealing.latency import LatencyPredictor
from timely_llm.policies.annealing.lengths import LearnedLengths, LengthModel, OutputLengths
from timely_llm.policies.annealing.objective import (
    OrderProblem,
    SizedRequest,
    in_batches,
)
from timely_llm.policies.annealing.search import Cooling, FoundOrder, anneal, exact, exhaustive
from timely_llm.policies.contract import Explains
from timely_llm.policies.packing import pack
from timely_llm.policies.step_time import StepTime

LIVE_TRIED = 5
"""Most waiting requests of which `search=exhaustive` tries all orders in a server.

The limit is a time of 5 ms for the whole search. It is not the 0.5 ms that an assignment of 10
requests may take: of these orders, only those of four requests fit 0.5 ms.
"""

LIVE_LABELLED = 6
"""Most waiting requests for which `search=exact` finds the best order in a server.

The limit is 5 ms here too, in batches of up to four. Only four requests fit 0.5 ms; five take about
0.7 ms, of which annealing takes a half in batches of one.
"""

LIVE_NODES = 50
"""Most nodes of `search=branch` in a server: with 20 waiting requests in batches of one they take
about 3 ms. That seldom proves an order, so the search is for experiments."""

_MOST_WORTH = 1e9  # a client's beta may be any number


class Search(StrEnum):
    """How the order is found.

    `annealing` is Algorithm 1. `exhaustive` and `exact` find the best order of up to five and six
    requests, which takes up to 5 ms (up to four fit 0.5 ms), and anneal with more. `branch` anneals
    and then goes on by branch and bound, for a limited number of nodes. `shortest` and `deadline`
    sort by predicted time and by the end of the limit.
    """

    ANNEALING = "annealing"
    EXHAUSTIVE = "exhaustive"
    EXACT = "exact"
    BRANCH = "branch"
    SHORTEST = "shortest"
    DEADLINE = "deadline"


class Objective(StrEnum):
    """What the best order has most of.

    `g` is Eq. 2. `worth` is this package's: the worth of met limits, less a price of waiting.
    """

    G = "g"
    WORTH = "worth"


@dataclass(eq=False)
class Annealing(Explains):
    """Whole requests in the order of batches that a search finds best.

    The search runs when a batch begins and requests have arrived since the last one. It predicts
    the time of each request from its prompt and a predicted length. No request is suspended or
    preempted.

    The limit of a plan is the time at which its utility is 0, for the whole plan, and its worth is
    the utility of a response in time. The limits of a stream are its service level.

    Attributes:
        rows: most requests in a batch (1, 2 and 4 in the paper); None: as many as the engine takes.
        static: a batch begins when the one before has ended (Eq. 11). Off: the next request of the
            order takes each free row, as in continuous batching.
        search: how the order is found.
        objective: what the best order is.
        price: price of a second of latency under `objective=worth`, as a share of a request's
            worth.
        lengths: how lengths are predicted.
        cooling: parameters of the annealing; by name, the policy takes its options as its own.
        predictor: predicted times; None: those of the loop's step times.
        output_lengths: predicted lengths.
        most_tried: most waiting requests of which `search=exhaustive` tries all orders.
        most_labelled: most waiting requests for which `search=exact` finds the best order.
        most_nodes: most nodes of `search=branch`.

    Raises:
        ConfigurationError: an option is out of its range.
    """

    rows: int | None = 4
    static: bool = True
    search: Search = Search.ANNEALING
    objective: Objective = Objective.G
    price: float = 0.01
    lengths: LengthModel = LengthModel.GAUSSIAN
    cooling: Cooling = field(default_factory=Cooling)
    predictor: LatencyPredictor | None = field(default=None, init=False)
    output_lengths: OutputLengths = field(init=False)
    most_tried: int = field(default=LIVE_TRIED, init=False)
    most_labelled: int = field(default=LIVE_LABELLED, init=False)
    most_nodes: int = field(default=LIVE_NODES, init=False)
    whole_plans = True

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 1:
            raise ConfigurationError(f"annealing: rows must be at least 1, not {self.rows}")
        if not 0.0 <= self.price < math.inf:
            raise ConfigurationError(
                f"annealing: price must be finite and from 0 on, not {self.price:g}"
            )
        self._draw = Random(0)
        self.output_lengths = LearnedLengths(self.lengths, self._draw)
        self._expected: dict[str, int] = {}  # tokens of each waiting request that was ordered
        self._order: list[list[str]] = []
        self._batch: list[Generation] = []

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the running batch, and the next one when it has ended."""
        self.output_lengths.watch(generations)
        begun = [g for g in generations if g.state is not State.QUEUED]
        waiting = {g.key: g for g in generations if g.state is State.QUEUED}
        rows = min(self.rows or capacity.max_rows, capacity.max_rows)
        here = {g.key for g in generations}
        self._batch = [g for g in self._batch if _is_active(g, here)]
        chosen = [g for g in self._batch if g.key in waiting]
        if not self.static or not (begun or self._batch):
            self._order_all(list(waiting.values()), now, step_time, rows)
            line = [[waiting[key] for key in batch] for batch in self._order]
            chosen = [one for batch in (line[:1] if self.static else line) for one in batch]
            if self.static:
                self._batch = chosen
        plan = self._packed(begun, chosen, generations, capacity, rows)
        if plan or not generations or (self._batch and not (begun or chosen)):
            return plan
        return self._packed(begun, list(waiting.values()), generations, capacity, rows)

    def _packed(
        self,
        begun: Sequence[Generation],
        chosen: Sequence[Generation],
        generations: Collection[Generation],
        capacity: Capacity,
        rows: int,
    ) -> StepPlan:
        """Return the step of the requests that have begun, and of those chosen to begin."""
        why: dict[str, Reason] | None = None
        if self.explain:
            why = {g.key: Reason(Cause.BEHIND, len(begun) + len(chosen)) for g in generations}
            why |= {g.key: Reason(Cause.ORDERED, place) for place, g in enumerate(chosen)}
            why |= {g.key: Reason(Cause.RUNS) for g in begun}
        return pack([*begun, *chosen], generations, capacity, rows, why)

    def _order_all(
        self, waiting: Sequence[Generation], now: float, step_time: StepTime, rows: int
    ) -> None:
        """Order the waiting requests; those that are gone leave the order that is known."""
        here = {g.key for g in waiting}
        if here <= self._expected.keys():
            kept = ([key for key in batch if key in here] for batch in self._order)
            self._order = [batch for batch in kept if batch]
            self._expected = {key: self._expected[key] for key in here}
            return
        self._expected = {
            g.key: self._expected.get(g.key) or self.output_lengths.expected(g) for g in waiting
        }
        requests = [sized(g, self._expected[g.key], now) for g in waiting]
        predictor = self.predictor or LatencyPredictor.of_step(step_time.coefficients)
        order = self.find(requests, predictor, min(rows, len(requests))).order
        self._order = [[waiting[one].key for one in batch] for batch in order]

    def find(
        self, requests: Sequence[SizedRequest], predictor: LatencyPredictor, rows: int
    ) -> FoundOrder:
        """Return the order that the search finds, in batches of at most `rows`.

        A sorted order has no score.
        """
        if self.search is Search.SHORTEST:
            took_s = [predictor.exec_s(rows, r.input_tokens, r.output_tokens) for r in requests]
            return _sorted(took_s, rows)
        if self.search is Search.DEADLINE:
            return _sorted([min(r.e2e_s, r.ttft_s) - r.waited_s for r in requests], rows)
        price = self.price if self.objective is Objective.WORTH else None
        if price is None:
            requests = [replace(one, worth=1.0) for one in requests]
        problem = OrderProblem.of(requests, predictor, rows, price)
        if self.search is Search.EXHAUSTIVE and problem.count <= self.most_tried:
            return exhaustive(problem)
        found = anneal(problem, self.cooling, self._draw)
        if self.search is Search.EXACT and problem.count <= self.most_labelled:
            best = exact(problem, found.order)
        elif self.search is Search.BRANCH:
            best = branch(problem, found.order, self.most_nodes)
        else:
            return found
        return best._replace(evaluations=best.evaluations + found.evaluations)


@dataclass(eq=False)
class ShortestJobFirst(Annealing):
    """Shortest job first, by predicted time, in continuous batches."""

    rows: int | None = None
    static: bool = False
    search: Search = field(default=Search.SHORTEST, init=False)
    objective: Objective = field(default=Objective.G, init=False)
    price: float = field(default=0.0, init=False)
    cooling: Cooling = field(default_factory=Cooling, init=False)


def sized(generation: Generation, output_tokens: int, now: float) -> SizedRequest:
    """Return a waiting request with its limits.

    Args:
        generation: the request.
        output_tokens: predicted tokens of its answer.
        now: the time, seconds.
    """
    tokens, waited_s = generation.to_compute, now - generation.arrival_s
    e2e_s = ttft_s = tpot_s = math.inf
    if isinstance(generation, PlanGeneration):
        e2e_s, worth = generation.zero_s - generation.arrival_s, generation.time_utility.beta
    else:
        assert isinstance(generation, StreamGeneration)
        slo, worth = generation.request.slo, generation.request.weight
        if slo.real_time:
            e2e_s = slo.deadline_s
        else:
            ttft_s, tpot_s = slo.ttft_s, slo.tpot_s
    worth = min(max(worth, 1.0 / _MOST_WORTH), _MOST_WORTH)
    return SizedRequest(tokens, output_tokens, e2e_s, ttft_s, tpot_s, waited_s, worth)


def _sorted(keys: Sequence[float], rows: int) -> FoundOrder:
    line = sorted(range(len(keys)), key=keys.__getitem__)
    return FoundOrder(in_batches(line, rows), math.nan, 0)


def _is_active(generation: Generation, here: Collection[str]) -> bool:
    """Return whether a request of the batch has not ended.

    One that is not in the pool waits for a step in flight, which leaves it no token to compute, or
    for its KV. Otherwise it is gone.
    """
    if generation.state not in (State.QUEUED, State.RUNNING, State.SUSPENDED):
        return False
    in_flight = generation.to_compute == 0 or generation.pending_tokens > 0
    return generation.key in here or in_flight or generation.loading
