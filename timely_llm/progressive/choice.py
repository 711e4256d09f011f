"""How a request is answered: which way, small model and edge, and with which other jobs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Generic, NamedTuple, Protocol, TypeVar

from timely_llm.core.request import (
    ErrorCode,
    PlanRequest,
    PlanResult,
    Request,
    Result,
    StreamResult,
)
from timely_llm.progressive.lengths import SecondsOf
from timely_llm.progressive.settings import HelpSettings

MOST_QUEUED = 4
"""Waiting jobs from which on no larger model is taken: as many as edges (Figure 13)."""

RECENT = 64
"""Number of the last answers of a kind from which the length of the next one is expected."""

FIRST_TOKENS = 500.0
"""Tokens of an answer until one of any kind has come."""

AnyJob = TypeVar("AnyJob")


class SmallModel(NamedTuple):
    """A model that an edge may run.

    Attributes:
        name: unique among the models.
        seconds: remaining processing time of a job with an expected answer of some tokens.
    """

    name: str
    seconds: SecondsOf


def choose_model(
    models: Sequence[SmallModel],
    current: int,
    answer_tokens: float,
    budget_s: float,
    queued: int,
    most_queued: int = MOST_QUEUED,
) -> int:
    """Return the place of the model that an edge takes for a job: Algorithm 2.

    Line 4 does not say which smaller model: it is the largest one in time here, and the smallest
    one if none is.

    Args:
        models: from the smallest to the largest.
        current: place of the model that the edge runs.
        answer_tokens: l_i, expected tokens of the whole answer.
        budget_s: f(l_i) - f(|r_i|): what is left of the cloud's own time, seconds.
        queued: jobs that wait for an edge.
        most_queued: the maximum of line 6.
    """
    if models[current].seconds(answer_tokens) > budget_s:
        for place in reversed(range(current)):
            if models[place].seconds(answer_tokens) <= budget_s:
                return place
        return 0
    if queued < most_queued:
        for place in range(current + 1, len(models)):
            if models[place].seconds(answer_tokens) < budget_s:
                return place
    return current


class EdgeView(Protocol):
    """What an edge says of itself; `timely_llm.dispatch.contract.ServerView` is one."""

    @property
    def name(self) -> str:
        """Name of the edge, unique."""
        ...

    @property
    def prefill_token_s(self) -> float:
        """Seconds of a prompt token."""
        ...

    @property
    def requests(self) -> int:
        """Requests that it serves, a row each."""
        ...

    @property
    def max_rows(self) -> int:
        """Most rows of a step."""
        ...

    @property
    def rtt_s(self) -> float:
        """Seconds of a message there and back."""
        ...

    @property
    def active(self) -> bool:
        """Whether it takes requests."""
        ...

    def step_s(self, rows: int) -> float:
        """Return the seconds of a step of some rows, from 1 on."""
        ...


def expansion_s(edge: EdgeView, prompt_tokens: float, tokens: Sequence[float]) -> float:
    """Return the predicted seconds of an expansion at an edge, beside what the edge serves.

    The rows that it serves stay; rows beyond the most of a step take their turns.

    Args:
        edge: the edge.
        prompt_tokens: of each row's prompt that the edge has no KV of.
        tokens: of each row, at least one.
    """
    rows = edge.requests + len(tokens)
    turns = rows / min(rows, edge.max_rows)
    step_s = edge.step_s(min(rows, edge.max_rows))
    prompts_s = edge.prefill_token_s * prompt_tokens * len(tokens)
    return edge.rtt_s + prompts_s + turns * step_s * max(tokens)


def nearest_edge(
    edges: Iterable[EdgeView], prompt_tokens: float, tokens: Sequence[float]
) -> tuple[str, float]:
    """Return the edge with the least predicted time for an expansion, and its seconds.

    Without an edge that takes requests it is ("", infinity).
    """
    found = ("", math.inf)
    for edge in edges:
        if edge.active and (seconds := expansion_s(edge, prompt_tokens, tokens)) < found[1]:
            found = (edge.name, seconds)
    return found


class Way(NamedTuple):
    """A way to answer a request: the cloud alone, an edge alone, or a sketch and an edge.

    Attributes:
        name: unique among the ways.
        quality: worth of such an answer at once, 1 for the cloud's own.
        seconds: from now to the end of an answer of some tokens.
        cloud_tokens: tokens that the cloud makes for an answer of some tokens.
    """

    name: str
    quality: float
    seconds: SecondsOf
    cloud_tokens: Callable[[float], float]


def best_way(
    ways: Iterable[Way],
    lengths: Sequence[float],
    utility: Callable[[float], float],
    token_price: float,
) -> Way:
    """Return the way with the largest mean worth over the lengths, of equal ones the first.

    The mean is over the learned lengths, not the worth of the mean length: a cloud that
    underestimates a length does not change the choice.

    Args:
        ways: at least one.
        lengths: of answers to requests of this kind, tokens; at least one.
        utility: share of the quality that is left after some seconds.
        token_price: worth that a token of the cloud costs.
    """

    def worth(way: Way) -> float:
        return fmean(
            way.quality * utility(way.seconds(tokens)) - token_price * way.cloud_tokens(tokens)
            for tokens in lengths
        )

    return max(ways, key=worth)


class KindLengths:
    """Learns how long answers are, by the kind of their requests.

    Args:
        first: tokens of an answer until one of any kind has come.
    """

    def __init__(self, first: float = FIRST_TOKENS) -> None:
        self._first = first
        self._all: deque[float] = deque(maxlen=RECENT)
        self._of: dict[str, deque[float]] = {}

    def learn(self, kind: str, tokens: float) -> None:
        """Take the length of an answer that has ended."""
        self._all.append(tokens)
        self._of.setdefault(kind, deque(maxlen=RECENT)).append(tokens)

    def known(self, kind: str) -> list[float]:
        """Return the last lengths of a kind; those of all kinds until one of it has come."""
        return list(self._of.get(kind) or self._all) or [self._first]

    def mean(self, kind: str) -> float:
        """Return the mean of the last lengths of a kind, tokens."""
        return fmean(self.known(kind))


def ratio_lists(ratio: float) -> Callable[[float], int]:
    """Return the list of a length if the longest length of a list is `ratio` times the shortest.

    Args:
        ratio: above 1; infinite: all lengths have one list.
    """
    if ratio == math.inf:
        return lambda tokens: 0
    base = math.log(ratio)
    return lambda tokens: math.floor(math.log(max(tokens, 1.0)) / base + 1e-9)


def power_of_two(tokens: float) -> int:
    """Return the list of a length: list j has the lengths from 2**j to below 2**(j + 1) tokens.

    The paper leaves the boundaries open.
    """
    return math.frexp(max(tokens, 1.0))[1] - 1


class JobLists(Generic[AnyJob]):
    """Jobs that wait for an edge, in lists by expected length.

    Args:
        list_of: the number of the list for an expected length, tokens.
    """

    def __init__(self, list_of: Callable[[float], int] = power_of_two) -> None:
        self._list_of = list_of
        self._lists: dict[int, deque[tuple[int, AnyJob]]] = {}
        self._put = 0

    def __len__(self) -> int:
        """Return the number of waiting jobs."""
        return sum(map(len, self._lists.values()))

    def put(self, job: AnyJob, tokens: float) -> None:
        """Let a job wait in the list of its expected length, tokens (lines 3 to 6)."""
        self._lists.setdefault(self._list_of(tokens), deque()).append((self._put, job))
        self._put += 1

    def take(self, most: int) -> list[AnyJob]:
        """Return the next batch for an idle edge, oldest first (lines 9 and 10).

        It comes from the list with the most jobs; of equal ones, from that with the oldest job.

        Args:
            most: most jobs of the batch.
        """
        if not self or most < 1:
            return []
        number = max(self._lists, key=lambda n: (len(self._lists[n]), -self._lists[n][0][0]))
        longest = self._lists[number]
        batch = [longest.popleft()[1] for _ in range(min(most, len(longest)))]
        if not longest:
            del self._lists[number]
        return batch

    def remove(self, job: AnyJob) -> bool:
        """Drop a job that is not wanted any more; return whether it waited."""
        for number, waiting in self._lists.items():
            for entry in waiting:
                if entry[1] == job:
                    waiting.remove(entry)
                    if not waiting:
                        del self._lists[number]
                    return True
        return False


_PLAN, _ANSWER = "plan", "answer"


class AutoHelp:
    """Learns how long answers are and how many tokens of the cloud they take.

    An answer with help is worth 1. One of the edge alone is worth `alone_worth`, or 1 if it has
    fewer than `auto_tokens` tokens. Both begin at once with words of the edge, so they are alike
    in time.

    Args:
        settings: of the help.
    """

    def __init__(self, settings: HelpSettings) -> None:
        self._settings = settings
        self._made = KindLengths()
        self._asked = KindLengths(settings.sketch_tokens)

    def learn(self, result: Result) -> None:
        """Take how a request ended; one that failed says nothing."""
        if not isinstance(result, PlanResult | StreamResult):
            return
        if result.error_code is ErrorCode.NONE:
            kind = _PLAN if isinstance(result, PlanResult) else _ANSWER
            self._made.learn(kind, result.generated_tokens)
            if result.cloud_tokens:
                self._asked.learn(kind, result.cloud_tokens)

    def refusal(self, request: Request) -> str | None:
        """Return why help is not worth its price; None: it is, or it costs nothing."""
        settings = self._settings
        if not settings.token_price:
            return None
        plans = isinstance(request, PlanRequest)
        kind = _PLAN if plans else _ANSWER
        lengths = [min(tokens, request.max_tokens) for tokens in self._made.known(kind)]
        long = [tokens for tokens in lengths if plans or tokens >= settings.auto_tokens]
        gain = (1.0 - settings.alone_worth) * len(long) / len(lengths)
        asked = self._asked.mean(kind)
        ways = (
            Way("alone", 1.0 - gain, _at_once, lambda tokens: 0.0),
            Way("help", 1.0, _at_once, lambda tokens: asked),
        )
        if best_way(ways, lengths, lambda seconds: 1.0, settings.token_price).name == "help":
            return None
        cost = settings.token_price * asked
        return f"help would cost {cost:.3g}, for about {asked:.0f} tokens, and gain {gain:.3g}"


def _at_once(tokens: float) -> float:
    return 0.0
