"""An hour of robots and people at one engine; the loop learns its step times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from timely_llm.conformance.policies.service import sizes
from timely_llm.core.clock import VirtualClock
from timely_llm.core.documents.read import load_document
from timely_llm.engines.simulated import Profile, SimulatedEngine
from timely_llm.experiments.results import talks as answers
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.experiments.virtual.clients import SimulatedClients, stream_request
from timely_llm.experiments.virtual.outcome import Run
from timely_llm.experiments.virtual.simulation import (
    LIMITS,
    MAX_TOKENS,
    SimulationSettings,
    request_for,
    script,
    true_seconds,
)
from timely_llm.experiments.virtual.slice_workload import Mix, talks
from timely_llm.experiments.virtual.workload import OneTask, skill_set, task_text, works
from timely_llm.policies.contract import Policy
from timely_llm.policies.step_time import StepTime
from timely_llm.resources import resource
from timely_llm.serving.loop import Loop
from timely_llm.traces.compose import compose
from timely_llm.traces.model import TraceError
from timely_llm.traces.recipes import Recipe
from timely_llm.traces.tasks import TraceTasks

HOUR_S = 3600.0
PART_S = 600.0

ENGINE = Profile(
    "hour", "made up: steps that context makes longer", 0.03, 0.0005, 0.00005, 0.000001
)
ROBOTS = Recipe(
    tasks="1-8", events_per_s=0.05, max_tasks=4, agents={"drone": 16}, duration_s=HOUR_S
)
PEOPLE = Mix(0.4, rt_ratio=0.5)


class WatchedStepTime(StepTime):
    """Remembers how wrong its predictions were before it learned from each step."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.wrong: list[tuple[float, float]] = []

    def observe(
        self, seconds: float, rows: int, prefill_tokens: int = 0, context_tokens: int = 0
    ) -> None:
        predicted_s = self.predict_s(rows, prefill_tokens, context_tokens)
        self.wrong.append((self._clock.now(), abs(predicted_s / seconds - 1.0)))
        super().observe(seconds, rows, prefill_tokens, context_tokens)


@dataclass(frozen=True)
class Hour:
    """What happened.

    Attributes:
        wrong: (time, by what share a step's prediction was wrong).
        held: what the loop's containers held after ten minutes, and at the end.
    """

    run: Run
    wrong: Sequence[tuple[float, float]]
    held: tuple[Counter[str], Counter[str]]

    def in_time(self, begin_s: float, end_s: float) -> list[bool]:
        """Return whether real-time answers of a part of the hour came by their deadlines."""
        return [
            answers.met(talk)
            for talk in self.run.conversations
            if answers.is_real_time(talk) and begin_s <= talk.conversation.arrival_s < end_s
        ]


def an_hour(policy: Policy) -> Hour:
    """Return an hour of robots and people under a policy."""
    settings = SimulationSettings(profile=ENGINE, seed=0)
    file = resource("config/traces/lrtrace_tasks.yaml")
    tasks = load_document(file, TraceTasks, "task set", TraceError)
    trace = compose(ROBOTS, tasks, shipped_skill_sets())
    jobs = works(trace, skip=0, skill_sets=shipped_skill_sets())
    people = list(takewhile(lambda talk: talk.arrival_s <= HOUR_S, talks(PEOPLE, 0)))
    clock = VirtualClock()
    step_time = WatchedStepTime(clock)
    clients = SimulatedClients(clock, true_seconds, settings.network_s, settings.reports)
    said = script(jobs, people)
    engine = SimulatedEngine(ENGINE, lambda key, _: said[key], clock, LIMITS)
    engine.tokenizer = OneTask()
    loop = Loop(engine, policy, clock, step_time, settings.timeouts())
    robot = skill_set(settings.shared_tokens)
    loop.register(robot)
    for work in jobs:
        clients.enter(work, request_for(work, robot.name, task_text(), settings))
    for talk in people:
        clients.enter_person(talk, stream_request(talk, MAX_TOKENS))
    held: list[Counter[str]] = []
    outside = [clients, step_time, engine.tokenizer]

    def look(done: int, total: int) -> None:
        if not held and clock.now() > PART_S:
            held.append(sizes(loop, engine, leave_out=outside))

    run = clients.run(loop, lambda until_s: clock.advance(max(until_s - clock.now(), 0.0)), look)
    loop.turn()
    held.append(sizes(loop, engine, leave_out=outside))
    return Hour(run, step_time.wrong, (held[0], held[1]))
