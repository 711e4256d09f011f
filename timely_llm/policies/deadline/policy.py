"""The policy `deadline`: every deliverable has a due time and a worth."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation, PlanGeneration, by_kind
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Explains
from timely_llm.policies.deadline.streams import AHEAD, SharedStep, Streams
from timely_llm.policies.deadline.wave import Deliverable, best_prefix, by_loss
from timely_llm.policies.lengths import SegmentLengths
from timely_llm.policies.packing import Memory, pack
from timely_llm.policies.step_time import StepTime

LONGEST_SEGMENT = 16
LOOK_AT = 32
GATHER_S = 0.002
MOST_URGENT = 10.0
_FIRST_GUESS = 8
_EXPENSIVE = 2.0
_TICK_S = 1e-6


@dataclass(eq=False)
class Deadline(Explains):
    """Takes the wave of plans that is worth most, and streams by worth per engine time.

    Attributes:
        kappa: price of an idle robot, per second, as a share of its request's worth.
        lead_s: time before the robot's idle time at which a resting plan goes on, seconds;
            infinite: it runs ahead.
        quantile: quantile of the learned lengths that is assumed for a real-time answer.
        late_rate: share of its rate that an answer keeps when the engine has no time for more.
        people: worth of a person's answer in the units of robots' plans.
        urgent: exponent of the worth of plans: 1 as requests say, 0 all alike, 2 squares ratios.

    Raises:
        ConfigurationError: an option is out of its range.
    """

    kappa: float = 0.1
    lead_s: float = math.inf
    quantile: float = 0.7
    late_rate: float = 0.25
    people: float = 1.0
    urgent: float = 1.0
    whole_plans = False

    def __post_init__(self) -> None:
        for name, possible, allowed in (
            ("kappa", 0.0 <= self.kappa < math.inf, "finite and from 0 on"),
            ("lead_s", self.lead_s >= 0.0, "from 0 on"),
            ("quantile", 0.0 <= self.quantile < 1.0, "from 0 on and below 1"),
            ("late_rate", 0.0 < self.late_rate <= 1.0, "above 0 and at most 1"),
            ("people", 0.0 <= self.people < math.inf, "finite and from 0 on"),
            ("urgent", 0.0 <= self.urgent <= MOST_URGENT, f"from 0 to {MOST_URGENT:g}"),
        ):
            if not possible:
                value = getattr(self, name)
                raise ConfigurationError(f"deadline: {name} must be {allowed}, not {value:g}")
        self.lengths = SegmentLengths(_FIRST_GUESS)
        self.streams = Streams(self.quantile, self.late_rate, self.people)

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the decoding plans, the joining plans that are worth most, and streams."""
        plans, streams = by_kind(generations)
        why: dict[str, Reason] | None = {} if self.explain else None
        needed, ahead, wake_s = self._by_need(plans, now, step_time)
        gather_s = self._gathers_until_s(needed, ahead)
        if why is not None:
            why |= {g.key: Reason(Cause.NOT_DUE, g.due_s - now) for g in plans}
            why |= {g.key: Reason(Cause.AHEAD_LIMIT, g.due_s - now) for g in ahead}
            why |= {g.key: Reason(Cause.BEHIND, LOOK_AT) for g in needed}
        if now < gather_s - _TICK_S:
            if why is not None:
                why |= {g.key: Reason(Cause.GATHERS, gather_s - now) for g in generations}
            return StepPlan(wake_s=min(gather_s, wake_s), reasons=tuple((why or {}).items()))
        one_s = step_time.predict_s(1)
        expensive = len(needed) > 1 and step_time.predict_s(len(needed)) > _EXPENSIVE * one_s
        line = [self._deliverable(generation, step_time) for generation in needed]
        if streams or expensive or any(one.prompt_s for one in line):
            line = by_loss(line, now, step_time)
        held: set[Deliverable] = set()
        if streams or self.streams.watching:
            held = self.streams.promise(now, streams, line, step_time)
            if held and self.streams.due(now + one_s):
                line = [one for one in line if one not in held]
        if needed or streams:
            room_s = AHEAD * one_s
            ahead = [] if expensive else ahead[: max(int(room_s / max(step_time.coefficients[1], 1e-9)), 1)]
        fitting = self._fitting(line, ahead, generations, now, step_time, capacity, why)
        if ahead and len(fitting) < len(line):
            # Plans that run ahead give their memory to those that are needed.
            fitting = self._fitting(line, [], generations, now, step_time, capacity, why)
        line = fitting[: capacity.max_rows]
        number = len(line)
        if expensive or any(one.prompt_s for one in line):
            number = best_prefix(line, now, step_time)
        wave = line[:number]
        if not expensive:  # then a row costs less than what it saves
            wave += [one for one in line[number:] if not one.prompt_s]
        if why is not None:
            joining = set(wave)
            for one in line:
                cause = Cause.WORTH_MOST if one in joining else Cause.WORTH_LESS
                why[one.generation.key] = Reason(cause, one.expected(now, one_s))
            why |= {one.generation.key: Reason(Cause.WORTH_LESS, one.expected(now, one_s)) for one in held}
            why |= {g.key: Reason(Cause.AHEAD, g.due_s - now) for g in ahead}
        batch = [one.generation for one in wave]
        batch.sort(key=_to_compute)
        if not (batch or ahead or held) and needed:
            batch, alone_s = self._alone(needed, generations, now, step_time, capacity)
            wake_s = min(wake_s, alone_s)
            if why is not None:
                why |= {g.key: Reason(Cause.ALONE) for g in batch}
        self.lengths.watch([*batch, *ahead])
        first: list[Generation] = [*batch, *ahead]
        tokens = capacity
        if streams:
            step = self._shared_step(first, wave, now, step_time, capacity, why)
            if why is not None:
                why |= {k: Reason(Cause.NOT_PROMISED, need) for k, need in self.streams.needs()}
            self.streams.join(now, step)
            first = [*first, *sorted(step.joined, key=_to_compute)]
            total = sum(g.to_compute for g in first if isinstance(g, PlanGeneration)) + step.tokens
            tokens = replace(capacity, max_step_tokens=min(total, capacity.max_step_tokens))
        plan = pack(first, generations, tokens, why=why)
        if streams and not plan:
            # No chosen generation fits: take the streams with least to compute.
            plan = pack(sorted(streams, key=_to_compute), generations, capacity, why=why)
            if why is not None:
                why |= dict.fromkeys(plan.keys, Reason(Cause.ALONE))
                plan = replace(plan, reasons=tuple(why.items()))
        if first and not plan:
            wake_s = math.inf  # the batch needs more than all memory: waiting does not help
        evictable = plan.evictable
        if evictable:
            last = {g.key for g in needed if g.to_compute == 1}
            spent = self.streams.unpromised()
            evictable = tuple(sorted(evictable, key=lambda key: (key in last, key not in spent)))
        return StepPlan(plan.entries, evictable, wake_s, plan.reasons)

    def _by_need(
        self, plans: Sequence[PlanGeneration], now: float, step_time: StepTime
    ) -> tuple[list[PlanGeneration], list[PlanGeneration], float]:
        """Return plans needed soon, plans that may run ahead by due time, and the next wake time."""
        needed, ahead, wake_s = [], [], math.inf
        soon_s = LONGEST_SEGMENT * step_time.predict_s(1)
        for generation in plans:
            spare_s = -math.inf if generation.first else generation.robot_free_s - now
            if generation.to_compute > 1 or spare_s <= soon_s:
                needed.append(generation)
            elif spare_s <= self.lead_s:
                ahead.append(generation)
            else:
                wake_s = min(wake_s, generation.robot_free_s - self.lead_s)
        ahead.sort(key=lambda generation: generation.robot_free_s)
        return needed, ahead, wake_s

    def _deliverable(self, generation: PlanGeneration, step_time: StepTime) -> Deliverable:
        prompt_s = step_time.coefficients[2] * (generation.to_compute - 1)
        outlook = self.lengths.to_go(generation)
        return Deliverable(generation, outlook, prompt_s, self.kappa, self.urgent)

    def _fitting(
        self,
        line: Sequence[Deliverable],
        ahead: Sequence[PlanGeneration],
        everyone: Collection[Generation],
        now: float,
        step_time: StepTime,
        capacity: Capacity,
        why: dict[str, Reason] | None,
    ) -> list[Deliverable]:
        """Return a line without the waiting plans that do not fit into the KV memory."""
        if not any(one.prompt_s for one in line):
            return list(line)
        running = [one.generation for one in line if one.generation.to_compute <= 1]
        memory = _memory([*running, *ahead], everyone, step_time, capacity)
        fitting, waiting = [], 0
        for one in line:
            generation = one.generation
            if generation.to_compute > 1:
                if waiting == LOOK_AT:
                    break
                if not memory.has_room(generation, now):
                    if why is not None:
                        why[generation.key] = memory.refusal(generation)
                    continue
                memory.promise(generation)
                waiting += 1
            fitting.append(one)
        return fitting

    def _alone(
        self,
        needed: Sequence[PlanGeneration],
        everyone: Collection[Generation],
        now: float,
        step_time: StepTime,
        capacity: Capacity,
    ) -> tuple[list[PlanGeneration], float]:
        """Return the first plan that fits alone, and when another one may evict others."""
        memory = _memory([], everyone, step_time, capacity)
        for generation in needed:
            if memory.has_room_alone(generation, now):
                return [generation], math.inf
        return [], memory.next_start_s(needed, now)

    def _gathers_until_s(
        self, needed: Sequence[PlanGeneration], ahead: Sequence[PlanGeneration]
    ) -> float:
        """Return when an engine at rest stops waiting for the rest of a burst."""
        if not needed or ahead or any(g.to_compute <= 1 for g in needed):
            return -math.inf
        arrivals_s = [generation.arrival_s for generation in needed]
        return min(max(arrivals_s) + GATHER_S, min(arrivals_s) + 10 * GATHER_S)

    def _shared_step(
        self,
        first: Sequence[Generation],
        wave: Sequence[Deliverable],
        now: float,
        step_time: StepTime,
        capacity: Capacity,
        why: dict[str, Reason] | None,
    ) -> SharedStep:
        """Return the step with its plans, before streams join it."""
        prompts = sum(g.to_compute for g in first if g.to_compute > 1)
        context = sum(g.context_tokens for g in first)
        step_s = step_time.predict_s(len(first), 0, context)
        prompts_s = step_time.predict_s(len(first), prompts, context) - step_s
        least_s = step_s * (1.0 + AHEAD)
        limits = [(one.density, max(one.own_step_s(now), least_s) + prompts_s) for one in wave]
        free = capacity.free_tokens - prompts - len(first) * LONGEST_SEGMENT
        return SharedStep(
            step_time, len(first), prompts, context, free, capacity.max_rows, limits, why
        )


def _memory(
    running: Collection[Generation],
    everyone: Collection[Generation],
    step_time: StepTime,
    capacity: Capacity,
) -> Memory:
    keys = {generation.key for generation in running}
    resting = [generation for generation in everyone if generation.key not in keys]
    return Memory(running, resting, capacity, step_time, LONGEST_SEGMENT)


def _to_compute(generation: Generation) -> int:
    return generation.to_compute
