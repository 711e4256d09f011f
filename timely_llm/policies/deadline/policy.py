"""The policy `deadline`: every deliverable has a due time and a worth."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.generation import Generation, PlanGeneration, StreamGeneration, by_kind
from timely_llm.core.reason import Cause, Reason
from timely_llm.core.step import Capacity, StepPlan
from timely_llm.policies.contract import Explains
from timely_llm.policies.deadline.moment import AHEAD, Moment
from timely_llm.policies.deadline.recomputing import Recomputing
from timely_llm.policies.deadline.shared_step import SharedStep
from timely_llm.policies.deadline.streams import Streams
from timely_llm.policies.deadline.wave import (
    EXPENSIVE,
    LONGEST_SEGMENT,
    Deliverable,
    Newcomers,
    by_loss,
    wave_size,
)
from timely_llm.policies.lengths import SegmentLengths
from timely_llm.policies.packing import Memory, pack
from timely_llm.policies.step_time import StepTime

GATHER_S = 0.002
"""Seconds that an engine at rest awaits the rest of a burst; ten times as long at most."""

LOOK_AT = 32
"""Most plans that may join a step with their prompts."""

MOST_URGENT = 10.0
"""Largest exponent of the worth of plans."""

_FIRST_GUESS = 8  # tokens of a segment, until some of its class were seen
_TICK_S = 1e-6
_TO_COMPUTE, _FREE_S = attrgetter("to_compute"), attrgetter("robot_free_s")


@dataclass(eq=False)
class Deadline(Explains):
    """Takes the wave of plans that is worth most, and streams by worth per engine time.

    Attributes:
        kappa: price of an idle robot, per second, as a share of its request's worth.
        lead_s: time before the robot's idle time at which a resting plan goes on, seconds;
            infinite: it runs ahead.
        people: worth of a person's answer in the units of robots' plans.
        urgent: exponent of the worth of plans: 1 as requests say, 0 all alike, 2 squares ratios.

    Raises:
        ConfigurationError: an option is out of its range.
    """

    kappa: float = 0.1
    lead_s: float = math.inf
    people: float = 1.0
    urgent: float = 1.0
    whole_plans = False

    def __post_init__(self) -> None:
        for name, possible, allowed in (
            ("kappa", 0.0 <= self.kappa < math.inf, "finite and from 0 on"),
            ("lead_s", self.lead_s >= 0.0, "from 0 on"),
            ("people", 0.0 <= self.people < math.inf, "finite and from 0 on"),
            ("urgent", 0.0 <= self.urgent <= MOST_URGENT, f"from 0 to {MOST_URGENT:g}"),
        ):
            if not possible:
                value = getattr(self, name)
                raise ConfigurationError(f"deadline: {name} must be {allowed}, not {value:g}")
        self.lengths = SegmentLengths(_FIRST_GUESS)
        self.streams = Streams(self.people)
        self._newcomers: Newcomers | None = None  # made by the first wave that leaves plans behind
        self._recomputing: Recomputing | None = None  # made by the first step that evicts others

    def plan(
        self,
        now: float,
        generations: Collection[Generation],
        step_time: StepTime,
        capacity: Capacity,
    ) -> StepPlan:
        """Return the plans that are worth most in this step, and the streams beside them."""
        plans, streams = by_kind(generations)
        one_s = step_time.predict_s(1)
        why: dict[str, Reason] | None = {} if self.explain else None
        evicts = self._recomputing is None or self._recomputing.may_evict(now)
        moment = Moment(now, generations, step_time, one_s, capacity, why, evicts)
        needed, ahead, wake_s = self._by_need(plans, moment)
        if self._newcomers is not None:
            self._newcomers.look(now, needed, step_time)
        gather_s = _gathers_until_s(needed, ahead)
        if now < gather_s - _TICK_S:
            if why is None:
                return StepPlan(wake_s=min(gather_s, wake_s))
            moment.explain(generations, Cause.GATHERS, gather_s - now)
            return StepPlan(wake_s=min(gather_s, wake_s), reasons=tuple(why.items()))
        expensive = len(needed) > 1 and step_time.predict_s(len(needed)) > EXPENSIVE * one_s
        if needed or streams:
            room = int(AHEAD * one_s / max(step_time.coefficients[1], 1e-9))
            ahead = [] if expensive else ahead[: max(room, 1)]
        if why is not None:
            moment.explain(ahead, Cause.AHEAD)
        batch, held = needed, False
        wave: Sequence[Deliverable] = ()
        talks = bool(streams or self.streams.states)
        if talks or expensive or not _no_choice(needed, ahead, capacity):
            wave, held = self._wave(needed, ahead, streams, expensive, moment)
            batch = sorted([one.generation for one in wave], key=_TO_COMPUTE)
            rows = max(capacity.max_rows - self.streams.pressing - len(batch), 0)
            moment.explain(ahead[rows:], Cause.ROWS, capacity.max_rows)
            ahead = ahead[:rows]
        elif why is not None:
            moment.explain(needed, Cause.WORTH_MOST, None)
        if needed and not (batch or ahead or held):
            batch, alone_s = _alone(moment, needed)
            wake_s = min(wake_s, alone_s)
        first = [*batch, *ahead]
        self.lengths.watch(first)
        if streams:
            plan = self._with_streams(first, wave, streams, moment)
        else:
            plan = pack(first, generations, capacity, why=why)
        if plan.evictable:
            again = {g.key for g in first if g.to_compute > 1 and g.segments}
            tokens = sum([count for key, count in plan.entries if key in again])
            self._recomputing = self._recomputing or Recomputing()
            self._recomputing.began(now, step_time.coefficients[2] * tokens)
        if first and not plan:
            wake_s = math.inf  # the batch needs more than all memory: waiting does not help
        if wake_s == math.inf and not plan.evictable:
            return plan
        last = {g.key for g in needed if g.to_compute == 1}
        spent = self.streams.unpromised()
        evictable = sorted(plan.evictable, key=lambda key: (key in last, key not in spent))
        return replace(plan, evictable=tuple(evictable), wake_s=wake_s)

    def _by_need(
        self, plans: Sequence[PlanGeneration], moment: Moment
    ) -> tuple[list[PlanGeneration], list[PlanGeneration], float]:
        """Return plans that are needed, plans that may run ahead, and when to look again."""
        needed: list[PlanGeneration] = []
        ahead: list[PlanGeneration] = []
        wake_s = math.inf
        soon_s = moment.now + LONGEST_SEGMENT * moment.one_s
        lead_s = moment.now + self.lead_s
        for generation in plans:
            free_s = generation.robot_free_s
            if free_s <= soon_s or generation.to_compute > 1 or not generation.segments:
                needed.append(generation)
            elif free_s <= lead_s:
                ahead.append(generation)
            else:
                wake_s = min(wake_s, free_s - self.lead_s)
        ahead.sort(key=_FREE_S)
        if moment.why is not None:
            moment.explain(plans, Cause.NOT_DUE)
            moment.explain(ahead, Cause.AHEAD_LIMIT)
            moment.explain(needed, Cause.BEHIND, LOOK_AT)
        return needed, ahead, wake_s

    def _wave(
        self,
        needed: Sequence[PlanGeneration],
        ahead: Sequence[PlanGeneration],
        streams: Sequence[StreamGeneration],
        expensive: bool,
        moment: Moment,
    ) -> tuple[Sequence[Deliverable], bool]:
        """Return the needed plans of this step, and whether others wait for streams."""
        begin_s, step_time = moment.begin_s, moment.step_time
        prompt_s, to_go = step_time.coefficients[2], self.lengths.to_go
        kappa, urgent = self.kappa, self.urgent
        line = by_loss(
            [
                Deliverable(g, to_go(g), prompt_s * (g.to_compute - 1), kappa, urgent)
                for g in needed
            ],
            begin_s,
            step_time,
        )
        held: set[Deliverable] = set()
        if streams or self.streams.states:
            held = self.streams.promise(moment, streams, line)
            if held and self.streams.due(moment.now + moment.one_s):
                line = [one for one in line if one not in held]
        if not expensive:  # then a row costs less than what it saves
            line.sort(key=lambda one: one.prompt_s > 0.0)
        fitting, all_fit = _fitting(moment, line, ahead)
        if ahead and not all_fit:
            # Plans that run ahead give their memory to those that are needed.
            fitting, _ = _fitting(moment, line, ())
        rows = moment.capacity.max_rows - self.streams.pressing
        fitting = fitting[:rows]
        decoding = 0 if expensive else sum([not one.prompt_s for one in fitting])
        newcomers = self._newcomers
        slowdown = 1.0 if expensive or newcomers is None else newcomers.slowdown
        wave = fitting[: wave_size(fitting, begin_s, step_time, max(decoding, 1), slowdown)]
        if len(wave) < len(fitting):
            self._newcomers = newcomers or Newcomers()
            self._newcomers.leave_behind(moment.now)
        if moment.why is not None:
            joining = set(wave)
            for one in (*held, *fitting):
                cause = Cause.WORTH_MOST if one in joining else Cause.WORTH_LESS
                worth = one.expected(begin_s, moment.one_s)
                moment.why[one.generation.key] = Reason(cause, worth)
        return wave, bool(held) or not rows

    def _with_streams(
        self,
        first: Sequence[Generation],
        wave: Sequence[Deliverable],
        streams: Sequence[StreamGeneration],
        moment: Moment,
    ) -> StepPlan:
        """Return the step of some plans, those of a wave among them, with streams that join it."""
        generations, capacity, why = moment.generations, moment.capacity, moment.why
        step = SharedStep(moment, first, wave)
        self.streams.join(moment, step)
        batch = [*first, *sorted(step.joined, key=_TO_COMPUTE)]
        tokens = sum([g.to_compute for g in first]) + step.tokens
        plan = pack(batch, generations, capacity, why=why, tokens=tokens)
        if not plan:
            # No chosen generation fits: take the streams with least to compute.
            plan = pack(sorted(streams, key=_TO_COMPUTE), generations, capacity, why=why)
            if why is not None:
                why |= dict.fromkeys(plan.keys, Reason(Cause.ALONE))
                plan = replace(plan, reasons=tuple(why.items()))
        return plan


def _fitting(
    moment: Moment, line: Sequence[Deliverable], ahead: Sequence[PlanGeneration]
) -> tuple[Sequence[Deliverable], bool]:
    """Return a line without waiting plans for which memory lacks, and whether none lacks."""
    waiting = [place for place, one in enumerate(line) if one.generation.to_compute > 1]
    if len(waiting) > LOOK_AT:
        line = line[: waiting[LOOK_AT]]
    tokens = sum([one.generation.to_compute for one in line])
    rows = len(line) + len(ahead)
    if tokens + rows * LONGEST_SEGMENT <= moment.capacity.free_tokens:
        return line, True
    running = [one.generation for one in line if one.generation.to_compute <= 1]
    memory = _memory(moment, [*running, *ahead])
    fitting, all_fit = [], True
    for one in line:
        generation = one.generation
        if generation.to_compute > 1:
            if not memory.has_room(generation, moment.now, moment.evicts):
                all_fit = False
                if moment.why is not None:
                    moment.why[generation.key] = memory.refusal(generation)
                continue
            memory.promise(generation)
        fitting.append(one)
    return fitting, all_fit


def _alone(moment: Moment, needed: Sequence[PlanGeneration]) -> tuple[list[PlanGeneration], float]:
    """Return the first plan that fits alone, and when another one may evict others."""
    memory = _memory(moment, [])
    for generation in needed:
        if memory.has_room_alone(generation, moment.now):
            moment.explain([generation], Cause.ALONE, None)
            return [generation], math.inf
    return [], memory.next_start_s(needed, moment.now)


def _memory(moment: Moment, running: Sequence[Generation]) -> Memory:
    keys = {generation.key for generation in running}
    resting = [generation for generation in moment.generations if generation.key not in keys]
    return Memory(running, resting, moment.capacity, moment.step_time, LONGEST_SEGMENT)


def _gathers_until_s(needed: Sequence[PlanGeneration], ahead: Sequence[PlanGeneration]) -> float:
    """Return when an engine at rest stops waiting for the rest of a burst."""
    if not needed or ahead or any(g.to_compute <= 1 for g in needed):
        return -math.inf
    arrivals_s = [generation.arrival_s for generation in needed]
    return min(max(arrivals_s) + GATHER_S, min(arrivals_s) + 10 * GATHER_S)


def _no_choice(
    needed: Sequence[PlanGeneration], ahead: Sequence[PlanGeneration], capacity: Capacity
) -> bool:
    """Return whether all can join: decoding plans, or one plan alone, and there is room."""
    rows, tokens = len(needed) + len(ahead), sum([g.to_compute for g in needed])
    alike = tokens == len(needed) or rows == 1
    return alike and rows <= capacity.max_rows and tokens + len(ahead) <= capacity.free_tokens
