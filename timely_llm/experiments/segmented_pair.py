"""One plan generated twice, turn by turn: in segments, and as if nobody knew what a segment is."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import count

from timely_llm.core.clock import WallClock
from timely_llm.core.generation import PlanGeneration
from timely_llm.core.request import PlanRequest, PlanResult, Request, Result
from timely_llm.engines.contract import Engine
from timely_llm.experiments.contract import ExperimentError
from timely_llm.policies.contract import Policy
from timely_llm.serving.delivery import PlanDelivery
from timely_llm.serving.loop import Loop
from timely_llm.serving.sink import Nobody
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Piece

MOST_TOKENS = 256


@dataclass(frozen=True)
class Paired:
    """What a plan cost, in seconds of the CPU.

    Attributes:
        segmented_s, plain_s: all turns of the loop, with segments and without.
        tokens, segments: of the plan.
        prompt_tokens: of its prompt, without the shared beginning.
    """

    segmented_s: float
    plain_s: float
    tokens: int
    segments: int
    prompt_tokens: int


class Pair:
    """Two serving loops on one engine, of which one looks for segments.

    The other has no stop checker, so that nothing is delivered or suspended; all else is the same.

    Args:
        engine: of both; it computes in the thread that calls it.
        policies: a new one for each.
        skill_set: of all requests.
    """

    def __init__(
        self, engine: Engine, policies: tuple[Policy, Policy], skill_set: SkillSet
    ) -> None:
        self._heard = _Sink()
        clock = WallClock()
        self._segmented = Loop(engine, policies[0], self._heard, clock)
        self._plain = _PlainLoop(engine, policies[1], _Sink(), clock)
        for loop in (self._segmented, self._plain):
            shared = loop.register(skill_set)
        self._shared_tokens = shared
        self._skill_set = skill_set.name
        self._ids = count()

    def generate(self, task: str) -> Paired:
        """Return what a plan costs both loops, which take turns, each first in half of them.

        Raises:
            ExperimentError: the model makes no plan for the task.
        """
        tokens = self._tokens(task)
        self._ask(self._segmented, task, tokens)
        self._ask(self._plain, task, tokens)
        spent_s = [0.0, 0.0]
        order = [(0, self._segmented), (1, self._plain)]
        while self._segmented.generations or self._plain.generations:
            for place, loop in order:
                if loop.generations:
                    spent_s[place] += _turn_s(loop)
            order.reverse()
        made = self._result(task)
        own_tokens = made.prompt_tokens - self._shared_tokens
        return Paired(spent_s[0], spent_s[1], tokens, made.segments, own_tokens)

    def _tokens(self, task: str) -> int:
        """Return how many tokens the plan has."""
        self._ask(self._segmented, task)
        while self._segmented.generations:
            _turn_s(self._segmented)
        return self._result(task).generated_tokens

    def _ask(self, loop: Loop, task: str, most_tokens: int = MOST_TOKENS) -> None:
        name = f"r{next(self._ids)}"
        loop.admit(PlanRequest(name, name, self._skill_set, task, max_tokens=most_tokens))

    def _result(self, task: str) -> PlanResult:
        """Return how the last plan with segments ended."""
        result = self._heard.result
        if result is None or result.error_code:
            why = result.error_msg if result else "nothing came of it"
            raise ExperimentError(f"the model makes no plan for {task!r}: {why}")
        return result


class _PlainLoop(Loop):
    """A loop whose plans have no segments: they end when they have the tokens they may have."""

    def admit(self, request: Request, arrival_s: float | None = None) -> None:
        """Take a request into the pool, and let nobody look for its segments."""
        super().admit(request, arrival_s)
        generation = self._pool[request.request_id].generation
        if isinstance(generation, PlanGeneration):
            uncut = PlanDelivery(generation, self._engine.tokenizer, _Uncut(), whole=False)
            self._pool.put(uncut)


class _Uncut:
    """A stop checker that finds nothing."""

    done = False
    rest = ""
    tail = ""

    def feed(self, text: str) -> list[Piece]:
        return []

    def finish(self) -> tuple[Piece | None, str]:
        return Piece("", (), 0.0, ()), ""


class _Sink(Nobody):
    """Remembers the last end."""

    result: PlanResult | None = None

    def ended(self, result: Result) -> None:
        """Remember an end."""
        if isinstance(result, PlanResult):
            self.result = result


def _turn_s(loop: Loop) -> float:
    """Turn until a step was made; return the seconds of that turn."""
    while True:
        start_s = time.thread_time()
        turn = loop.turn()
        spent_s = time.thread_time() - start_s
        if turn.stepped or not loop.generations:
            return spent_s
        if turn.wake_s == math.inf:
            raise ExperimentError("the policy never serves a request that is alone")
        time.sleep(max(turn.wake_s - WallClock().now(), 0.0))
