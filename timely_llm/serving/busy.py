"""The busy gate: it refuses a request that cannot begin in time, and says when to ask again.

A client that is refused at once can ask another server, or wait. A request without room
waits, and makes others wait. The gate knows no policy: it asks whether *any* could serve one more.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from timely_llm.core.generation import Generation, PlanGeneration, State, StreamGeneration
from timely_llm.core.request import ErrorCode, PlanRequest, Rejected, Request, StreamRequest
from timely_llm.core.text import count_of
from timely_llm.policies.engine_share import (
    FREE_ROW,
    PATIENCE,
    UTIL,
    EngineShare,
    long_room,
    long_steps,
    steps_of_rows,
)
from timely_llm.policies.lengths import AnswerLengths, DecayingMean, task_type
from timely_llm.policies.step_time import StepTime

BEARABLE = 0.25
"""Share of its rate that an answer keeps beside requests that are worth more a token."""
OUTWEIGHS = 2.0
"""Ratio of worths a token from which on others give way; learned lengths are estimates."""
QUANTILE = 0.7
"""Quantile of the learned lengths that is assumed for answers."""
SEGMENT_TOKENS = 10
"""Tokens of the longest segment (Ling et al. 2024, §7.1)."""
IMPOSSIBLE = 0.4
"""Share of what the engine can do alone that stands for a rate or prompt beyond that."""
WINDOW_S = 20.0
"""Averaging window of the real-time load, seconds."""
SHORTEST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
_MARGIN = 0.5
_PLAN_S = 3.0  # a plan needs its next segment about that often
_CHARACTERS = 4  # of a token, about: prompts are made tokens only when they are let in


@dataclass(frozen=True)
class Want:
    """What a request needs of the engine.

    Attributes:
        need: tokens a second from now on.
        tokens: expected tokens to its end.
        density: worth of an answer in time, relative to others, over the expected tokens of all of
            it.
        prefill_tokens: tokens of its prompt that are not computed yet.
        begin_s: seconds from now to its next token, at the latest; with a deadline, to its end.
        real_time: the whole answer has a deadline.
        begun: its first token is there.
    """

    need: float
    tokens: float
    density: float
    prefill_tokens: int
    begin_s: float
    real_time: bool = False
    begun: bool = False

    @property
    def end_s(self) -> float:
        """Seconds from now to its expected end."""
        return self.tokens / self.need


class BusyGate:
    """Refuses requests for which the engine has no time, whatever the policy.

    A request has time if the needs of all requests together fit into `UTIL` of the engine's time
    (Eq. 7 of Zhou et al. 2025), after the prompts that are to be computed before its first token.
    Requests without a deadline leave the mean real-time load free, and half its standard deviation,
    unless their rows are free: real-time ones then share their steps. Those with a rate that the
    engine cannot give to one always leave it free. An idle engine takes all.

    *Where rows lack* requests share them in turn. One also has time if it is in time with a row of
    its own after those that must end before it, and makes none of the others late.

    *Requests that give way.* Beside a request that is worth `OUTWEIGHS` times as much a token,
    another one counts with `BEARABLE` of its needs. So a short answer is let in beside long ones of
    the same worth: it takes little from them.

    *What no engine like this could keep.* A rate beyond the engine's with one request counts as
    `IMPOSSIBLE` of that, so that a slow engine still takes several such requests. A prompt that
    takes longer than its time to the first token has a longer time.

    *What is not known yet.* A request with a deadline counts with its declared rate until lengths
    of its kind were seen, since clients declare far more tokens than they get. Other answers count
    with their rates alone; their lengths only say when to ask again.

    Args:
        plans: refuse plan requests too; else they only count.
    """

    def __init__(self, plans: bool = False) -> None:
        self._plans = plans
        self._lengths = AnswerLengths()
        self._real_time = DecayingMean(WINDOW_S)
        self._served: dict[str, StreamGeneration] = {}

    def check(
        self,
        request: Request,
        now: float,
        served: Sequence[Generation],
        step_time: StepTime,
        max_rows: int,
    ) -> None:
        """Let a request pass, or refuse it.

        Args:
            request: the request.
            now: its arrival, seconds on the loop's clock.
            served: the requests being served.
            step_time: seconds of steps.
            max_rows: most rows of a step; more requests take turns.

        Raises:
            Rejected: the engine has no time for it; `retry_after_s` says when it may have.
        """
        self._learn(served)
        asked = self._asked(request)
        if asked is None:
            return
        wants = list(self._wants(now, served))
        context = sum(one.context_tokens for one in served) / max(len(served), 1)

        rows_s = steps_of_rows(step_time, max_rows, context)
        known_s, (full_s,) = rows_s(range(1, len(wants) + 3)), rows_s(range(max_rows, max_rows + 1))
        one_s, row_s = known_s[0], known_s[1] - known_s[0]
        alone = UTIL / one_s

        def steps_s(rows: range) -> list[float]:
            return known_s[rows.start - 1 : rows.stop - 1]

        def possible(need: float) -> float:
            """Return a need that the engine can meet for one request."""
            return need if need <= alone else IMPOSSIBLE * alone

        def kept(want: Want) -> float:
            """Return the share of its need that another request keeps beside this one."""
            gives_way = 0.0 < asked.density >= OUTWEIGHS * want.density
            return BEARABLE if gives_way else 1.0

        need = possible(asked.need)
        kept_free = self._kept_free(now, asked, wants, steps_s, possible)
        most = UTIL if need * row_s <= FREE_ROW else UTIL - kept_free
        least_s, most_s = long_steps(one_s, row_s, full_s)
        if asked.need > need and not asked.real_time:
            most = UTIL - kept_free
        elif least_s <= 1.0 / need < most_s:
            most = UTIL + long_room(kept_free * row_s / one_s)
        prompt_s = step_time.coefficients[2]  # of a token
        own_s = prompt_s * asked.prefill_tokens
        begin_s = asked.begin_s if own_s <= UTIL * asked.begin_s else own_s / IMPOSSIBLE
        counted = sorted(wants, key=attrgetter("end_s"))

        def has_room(ended: int) -> bool:
            """Return whether the request fits when the first of the others have ended."""
            left = counted[ended:]
            needs = [possible(want.need) * kept(want) for want in left]
            if EngineShare(steps_s, [*needs, need]).used > most:
                return False
            # A request that has not begun needs its prompt first, and no tokens meanwhile.
            begun = [n for n, want in zip(needs, left, strict=True) if not want.prefill_tokens]
            prefill_tokens = asked.prefill_tokens + sum(want.prefill_tokens for want in left)
            return EngineShare(steps_s, begun).used + prompt_s * prefill_tokens / begin_s <= most

        if not wants or has_room(0):
            return
        if len(wants) >= max_rows and _in_turn(asked, wants, full_s, max_rows, prompt_s):
            return
        # From all but the first on, down to none: room only grows.
        ended = 1 + bisect_left(range(1, len(counted)), True, key=has_room)
        wait_s = min(max(counted[ended - 1].end_s, SHORTEST_RETRY_S), LONGEST_RETRY_S)
        raise _busy(len(wants), float(math.ceil(wait_s)))

    def _asked(self, request: Request) -> Want | None:
        """Return what a new request needs; None: it passes."""
        if isinstance(request, StreamRequest):
            slo = request.slo
            tokens = self._to_go(request, 0)
            begin_s = slo.deadline_s if slo.real_time else slo.ttft_s
            need = tokens / slo.deadline_s if slo.real_time else slo.rate
            prompt = sum(len(message.content) for message in request.messages) // _CHARACTERS
            return Want(need, tokens, request.weight / tokens, prompt, begin_s, slo.real_time)
        if not isinstance(request, PlanRequest) or request.given_plan or not self._plans:
            return None
        utility = request.time_utility
        if utility.zero_s == math.inf:
            return None
        need, prompt = SEGMENT_TOKENS / utility.zero_s, len(request.task) // _CHARACTERS
        density = utility.beta / SEGMENT_TOKENS
        return Want(need, SEGMENT_TOKENS, density, prompt, utility.zero_s)

    def _wants(self, now: float, served: Iterable[Generation]) -> Iterator[Want]:
        """Yield what the requests being served need."""
        for one in served:
            prompt = one.to_compute if one.to_compute > 1 else 0
            if isinstance(one, StreamGeneration):
                request, slo = one.request, one.request.slo
                out = len(one.token_ids)
                tokens = self._to_go(request, out)
                left_s = one.due_s - now
                in_time = slo.real_time and left_s > 0.0
                need = tokens / left_s if in_time else slo.rate
                density = request.weight / self._to_go(request, 0)
                begin_s = max(left_s, 0.0) if out and not in_time else left_s
                yield Want(need, tokens, density, prompt, begin_s, in_time, out > 0)
            elif isinstance(one, PlanGeneration) and one.state not in _EXECUTED:
                tokens = max(SEGMENT_TOKENS - one.segment_tokens, 1)
                need = tokens / max(one.due_s - now, _PLAN_S)
                density = one.request.time_utility.beta / SEGMENT_TOKENS
                yield Want(need, tokens, density, prompt, 0.0, begun=True)

    def _to_go(self, request: StreamRequest, out: int) -> int:
        """Return the expected tokens to come of an answer with `out` tokens."""
        slo, most = request.slo, request.max_tokens
        if slo.real_time and not self._lengths.knows(task_type(request)):
            most = min(most, math.ceil(slo.rate * slo.deadline_s))
        return self._lengths.to_go(task_type(request), out, most, QUANTILE)

    def _kept_free(
        self,
        now: float,
        asked: Want,
        wants: Sequence[Want],
        steps_s: Callable[[range], list[float]],
        possible: Callable[[float], float],
    ) -> float:
        """Return the share of the engine that a request leaves to real-time ones to come."""
        # The one that comes counts too: what is kept free must hold it beside those present.
        needs = [want.need for want in wants if want.real_time]
        needs += [asked.need] * asked.real_time
        present = EngineShare(steps_s, map(possible, needs)).used
        self._real_time.saw(present, now)
        if asked.real_time:
            return 0.0
        usual = self._real_time.mean + _MARGIN * self._real_time.deviation
        return max(usual - present, 0.0)

    def admitted(self, one: Generation) -> None:
        """Learn the length of a request that passed, once it has ended."""
        if isinstance(one, StreamGeneration):
            self._served[one.key] = one

    def _learn(self, served: Iterable[Generation]) -> None:
        """Learn the lengths of answers that have ended."""
        before = self._served
        self._served = {one.key: one for one in served if isinstance(one, StreamGeneration)}
        for one in before.values():
            if one.state is State.ENDED and one.token_ids:
                self._lengths.observe(task_type(one.request), len(one.token_ids))


def _in_turn(asked: Want, wants: Iterable[Want], step_s: float, rows: int, prompt_s: float) -> bool:
    """Return whether a request is in time if each has a row until it ends, and makes none late.

    The one that must be the first to end is the first. A request that cannot wait for a good part
    of an answer shares a row instead.

    Args:
        asked: the request.
        wants: the others.
        step_s: seconds of a step of all rows.
        rows: their number.
        prompt_s: seconds of a prompt's token.
    """
    all_of = [*wants, asked]
    usual_s = step_s * sum([want.tokens for want in all_of]) / len(all_of)
    if asked.begin_s < PATIENCE * usual_s:
        return False
    line: list[tuple[float, float, float, bool]] = []
    for want in all_of:
        row_s = want.tokens * step_s
        last_s = want.begin_s
        if want.real_time:
            last_s -= row_s
        elif want.begun:
            last_s += max(want.end_s - row_s, 0.0)  # it is ahead of its reader, or will be
        whole_s = row_s / rows + prompt_s * want.prefill_tokens
        by_s = last_s + whole_s if last_s >= 0.0 else math.inf
        line.append((by_s, last_s, whole_s, want is asked))
    begin_s = own_s = 0.0
    for _, last_s, whole_s, is_asked in sorted(line):
        in_time = last_s >= begin_s
        if not in_time and (is_asked or last_s >= begin_s - own_s):
            return False
        begin_s += whole_s
        own_s += whole_s * is_asked
    return True


_EXECUTED = (State.BLOCKED, State.EXECUTING)


def _busy(served: int, retry_after_s: float) -> Rejected:
    return Rejected(
        ErrorCode.BUSY,
        f"the server is busy with {count_of(served, 'request')} and cannot begin this one in time:"
        f" try again in {retry_after_s:g} s",
        retry_after_s,
    )


GATES: Mapping[str, Callable[[], BusyGate | None]] = {
    "off": lambda: None,
    "people": BusyGate,
    "all": lambda: BusyGate(plans=True),
}
"""Makes a gate by the name of what it refuses: nothing, requests for answers, or plans too."""
