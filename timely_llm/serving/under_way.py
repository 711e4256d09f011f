"""Steps in flight, as the serving loop remembers them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from timely_llm.core.generation import Generation, State
from timely_llm.engines.contract import Engine, StepResult
from timely_llm.policies.contract import StepPlan

_GONE = (State.ENDED, State.EXECUTING)


@dataclass(eq=False, slots=True)
class Part:
    """What one generation does in a step in flight.

    Attributes:
        planned: tokens that it computes.
        brings: new tokens that it brings, 0 or 1 but for guesses.
        ahead: how many of these can take part in the next step already.
        strikes: how often the generation had been struck out of steps in flight.
        late: whether its stop was found when the step was in flight already.
    """

    generation: Generation
    planned: int
    brings: int
    ahead: int
    strikes: int
    late: bool = False

    @property
    def live(self) -> bool:
        """Whether the generation still has part in the step."""
        generation = self.generation
        return self.strikes == generation.strikes and generation.state not in _GONE


class UnderWay:
    """A step in flight.

    Generations are brought up to date when it starts, as if all went well, so that a policy can
    plan the next step; what came out differently is put right when it ends.

    Args:
        plan: what was submitted.
        generations: those that take part, in the plan's order.
        ahead: whether the engine goes ahead.

    Attributes:
        parts: by key, in the plan's order.
        context_tokens: that its sequences attend to.
    """

    def __init__(self, plan: StepPlan, generations: Iterable[Generation], ahead: bool) -> None:
        self.parts: dict[str, Part] = {}
        context = 0
        for (key, tokens), generation in zip(plan.entries, generations, strict=True):
            left = generation.to_compute
            planned = tokens if tokens < left else left
            brings = int(planned == left)
            part = Part(generation, planned, brings, brings if ahead else 0, generation.strikes)
            self.parts[key] = part
            context += generation.context_tokens
            generation.to_compute = left - planned + part.ahead
            generation.context_tokens += planned
            generation.coming += brings
            generation.state = State.RUNNING
        self.context_tokens = context

    def end(self, part: Part, result: StepResult) -> None:
        """Bring a generation up to date with what the step did; new tokens are not read yet."""
        generation, key = part.generation, part.generation.key
        beyond = result.computed.get(key, 0) + result.loaded.get(key, 0) - part.planned
        generation.coming -= part.brings
        generation.to_compute += len(result.tokens.get(key, ())) - part.ahead - beyond
        generation.context_tokens += beyond
        if result.recomputed:
            generation.tally.recomputed_tokens += result.recomputed.get(key, 0)


def strike_out(engine: Engine, generation: Generation, tokens: int = 0) -> None:
    """Forget what steps in flight will bring a generation, and its newest tokens."""
    if not (generation.coming or tokens):
        return
    known = generation.context_tokens + generation.to_compute - tokens
    known -= generation.coming if engine.ahead else 0
    generation.to_compute = engine.take_back(generation.key, tokens)
    generation.context_tokens = known - generation.to_compute
    generation.coming = 0
    generation.strikes += 1
