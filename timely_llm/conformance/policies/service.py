"""The contract for policies: what they do over time, alone and in the serving loop."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from hypothesis import strategies as st

from timely_llm.conformance.cases import for_all
from timely_llm.conformance.check import expect, expect_same
from timely_llm.conformance.policies.bench import POLICY_CHECKS, PolicyBench, ask
from timely_llm.conformance.policies.generations import DEAR_ROWS
from timely_llm.core.clock import Clock, VirtualClock
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import EndEvent
from timely_llm.core.generation import State, StreamGeneration
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    PlanRequest,
    PlanResult,
    Request,
    Result,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.slo import REAL_TIME, SLO_CLASSES, TEXT, VOICE, Slo, SloClass
from timely_llm.core.step import Capacity
from timely_llm.core.time_utility import NORMAL, URGENT
from timely_llm.engines.pipelined import PipelinedEngine, PipelineProfile, StageLink
from timely_llm.engines.sequences import EngineLimits
from timely_llm.engines.simulated import PROFILES, Script, SimulatedEngine
from timely_llm.policies.contract import Policy
from timely_llm.policies.micro_batches.policy import Mode, in_micro_batches
from timely_llm.policies.step_time import StepTime
from timely_llm.resources import resource
from timely_llm.serving.loop import Loop
from timely_llm.skills.skill_set import load_skill_set

OURS = ("timely_llm", "test")


def sizes(
    *roots: object, leave_out: Iterable[object] = (), packages: tuple[str, ...] = OURS
) -> Counter[str]:
    """Return how many elements all containers of a program's objects hold, by their place.

    Objects of some packages are looked into, and containers; functions and classes are not.

    Args:
        roots: where to begin.
        leave_out: objects that are not looked into.
        packages: names of packages; only their objects are looked into.
    """
    seen = {id(one) for one in leave_out}
    found: Counter[str] = Counter()
    left: list[tuple[str, Any]] = [(type(root).__name__, root) for root in roots]
    while left:
        place, one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        inner: Iterable[Any] = ()
        if isinstance(one, dict):
            found[place] += len(one)
            inner = [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset | deque):
            found[place] += len(one)
            inner = list(one)
        elif type(one).__module__.startswith(packages):
            names = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
            names += getattr(one, "__dict__", {})
            left += [
                (f"{type(one).__name__}.{name}", getattr(one, name, None))
                for name in names
                if name not in ("__dict__", "__weakref__")
            ]
        left += [(place, each) for each in inner if not isinstance(each, str | int | float)]
    return found


SKILL_SET = "config/skill_sets/drone.yaml"
PROFILE = PROFILES["rtx4090-llama3-8b"]
MOST_TURNS = 4000
SLOS = [slo_class.slo for slo_class in SLO_CLASSES] + [Slo(ttft_s=0.01, tpot_s=0.02)]
PLANS = ("mf(50);->True;", "tc(90);mu(100);mf(50);->True;", "?s('cat'){g('cat');->True;};->False;")


@dataclass(frozen=True)
class Demand:
    """A request, when it comes, and what the model says to it."""

    at_s: float
    request: Request
    answer: str

    def __str__(self) -> str:
        """Return what a reader of a case needs."""
        kind = "plan" if isinstance(self.request, PlanRequest) else "stream"
        return f"{self.request.request_id}: a {kind}, asked at {self.at_s:g} s, {self.answer!r}"


@dataclass(frozen=True)
class EngineShape:
    """The engine of a scene.

    Attributes:
        spare_tokens: tokens of KV beside the skill set's prompt.
        rows: most sequences in one step.
        in_flight: steps in flight.
        async_scheduling: whether a sequence takes part before its newest token has come; in one
            stage alone.
        stages: pipeline stages, the last one half as fast as the others.
        mode: how micro-batches divide the policy's steps.
    """

    spare_tokens: int = 1 << 20
    rows: int = 64
    in_flight: int = 1
    async_scheduling: bool = False
    stages: int = 1
    mode: Mode = Mode.OFF

    def engine(self, say: Script, clock: Clock, kv_tokens: int) -> SimulatedEngine:
        """Return the engine.

        Args:
            say: answers of the model.
            clock: passes with its steps.
            kv_tokens: tokens of KV.
        """
        limits = EngineLimits(kv_tokens=kv_tokens, max_rows=self.rows)
        if self.stages < 2:
            return SimulatedEngine(
                PROFILE, say, clock, limits, self.in_flight, self.async_scheduling
            )
        links = (StageLink(0.002, 0.0001),) * (self.stages - 1)
        like = replace(PROFILE, base_s=PROFILE.base_s / self.stages)
        stages = (*(like,) * (self.stages - 1), replace(like, base_s=2 * like.base_s))
        profile = PipelineProfile("stages", "made up", stages, links)
        return PipelinedEngine(profile, say, clock, limits, self.in_flight)


@st.composite
def demands(draw: st.DrawFn) -> list[Demand]:
    """Return one to nine requests of robots and people within a short time."""
    asked = []
    times_s = sorted(draw(st.lists(st.floats(0.0, 0.6), min_size=1, max_size=9)))
    for number, at_s in enumerate(times_s):
        name = f"r{number}"
        if draw(st.booleans()):
            utility = draw(st.sampled_from([NORMAL, URGENT]))
            request: Request = PlanRequest(name, f"agent-{name}", "drone", name * 8, utility)
            asked.append(Demand(at_s, request, draw(st.sampled_from(PLANS))))
        else:
            slo, weight = draw(st.sampled_from(SLOS)), draw(st.sampled_from([1.0, 100.0]))
            said = (ChatMessage("user", "What is new?"),)
            request = StreamRequest(name, f"agent-{name}", messages=said, slo=slo, weight=weight)
            words = " ".join(f"word{i}" for i in range(draw(st.integers(1, 12))))
            asked.append(Demand(at_s, request, words))
    return asked


shapes = st.builds(
    lambda spare, rows, pipeline: EngineShape(spare, rows, *pipeline),
    st.sampled_from([60, 150, 1 << 20]),
    st.integers(2, 9),
    st.one_of(
        st.sampled_from([(1, False), (2, False), (2, True), (4, True)]),
        st.tuples(
            st.integers(4, 6), st.just(False), st.sampled_from([2, 4]), st.sampled_from(Mode)
        ),
    ),
)


def take_ends(events: Iterable[RunEvent], ends: dict[str, Result]) -> None:
    """Enter how requests ended.

    Args:
        events: of a loop.
        ends: results by request id.

    Raises:
        Broken: a request ends twice.
    """
    for event in events:
        if isinstance(event, EndEvent) and event.result is not None:
            expect(event.id not in ends, f"{event.id} ends twice")
            ends[event.id] = event.result


def described(case: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the lines of a case: one for each request, and one for the engine."""
    return (*map(str, case["requests"]), str(case["engine"]))


def serve(policy: Policy, demand: Sequence[Demand], shape: EngineShape) -> None:
    """Serve requests until all have ended.

    Raises:
        Broken: one never ends or ends otherwise than if it were alone, or KV is left.
    """
    skill_set = load_skill_set(resource(SKILL_SET))
    policy = in_micro_batches(policy, shape.mode)
    answers = {one.request.request_id: one.answer for one in demand}
    prefix_tokens = _loop(policy, {}, EngineShape(), 1 << 20)[0].register(skill_set)
    loop, clock = _loop(policy, answers, shape, prefix_tokens + shape.spare_tokens)
    loop.register(skill_set)
    free_at_start = loop.free_kv_tokens
    coming, ends = list(demand), dict[str, Result]()
    for _ in range(MOST_TURNS):
        while coming and coming[0].at_s <= clock.now():
            loop.admit(coming.pop(0).request)
        turn = loop.turn()
        take_ends(turn.events, ends)
        if not turn.stepped:
            if not coming and not loop.generations:
                break
            wake_s = min(turn.wake_s, coming[0].at_s if coming else turn.wake_s)
            clock.advance(max(wake_s - clock.now(), 0.0))
    starving = ", ".join(generation.key for generation in loop.generations)
    expect(not starving, f"after {MOST_TURNS} turns {starving} has not ended")
    expect(not coming, f"after {MOST_TURNS} turns not all requests have come")
    for one in demand:
        key = one.request.request_id
        result = ends[key]
        code = result.error_code
        expect(code is ErrorCode.NONE, f"{key} ends with {code.name}: {result.error_msg}")
        said = result.text if isinstance(result, StreamResult) else cast(PlanResult, result).plan
        expect_same(f"what {key} was answered", said, one.answer)
    expect_same("free tokens of KV in the end", loop.free_kv_tokens, free_at_start)


def _loop(
    policy: Policy, answers: dict[str, str], shape: EngineShape, kv_tokens: int
) -> tuple[Loop, VirtualClock]:
    clock = VirtualClock()

    def say(key: str, prompt: str) -> str:
        return answers.get(key, "")

    return Loop(shape.engine(say, clock, kv_tokens), policy, clock), clock


AT_ONCE = 8
PROMPT_TOKENS = 40
CLASSES = (VOICE, TEXT, REAL_TIME, SloClass("slow", Slo(tpot_s=3.0)))


@dataclass
class Listeners:
    """What streams got.

    Attributes:
        busy_s: seconds of steps.
        rested: (when, until when) the engine rested.
        times_s: when each stream's tokens came.
        answered: streams of `serve_and_end`.
    """

    policy: Policy
    step_time: StepTime
    capacity: Capacity
    now: float = 0.0
    busy_s: float = 0.0
    rested: list[tuple[float, float]] = field(default_factory=list)
    times_s: dict[str, list[float]] = field(default_factory=dict)
    answered: int = 0

    def serve(self, streams: Iterable[StreamGeneration], until_s: float) -> None:
        """Serve streams that never end from their arrivals on.

        Raises:
            Broken: the engine rests while a stream is behind its rate.
        """
        coming = sorted(streams, key=lambda stream: stream.arrival_s)
        here: list[StreamGeneration] = []
        while self.now < until_s:
            while coming and coming[0].arrival_s <= self.now:
                here.append(coming.pop(0))
            plan = ask(self.policy, self.now, here, self.step_time, self.capacity)
            if plan:
                self._step(dict(plan.entries), here)
                continue
            next_s = coming[0].arrival_s if coming else until_s
            wake_s = max(min(plan.wake_s, next_s, until_s), self.now + 1e-6)
            late = [s.key for s in here if s.due_s < self.now]
            expect(not late, f"at {self.now} the engine rests, and {late} are behind their rates")
            self.rested.append((self.now, wake_s))
            self.now = wake_s

    def serve_and_end(self, steps: int, tokens: int) -> None:
        """Serve streams that end after some tokens, each followed by another one."""
        rng, here = random.Random(0), list[StreamGeneration]()
        for _ in range(steps):
            while len(here) < AT_ONCE:
                here.append(self._new_stream(rng.choice(CLASSES)))
            plan = ask(self.policy, self.now, here, self.step_time, self.capacity)
            if plan:
                self._step(dict(plan.entries), here)
            else:
                self.now = max(min(plan.wake_s, self.now + 1.0), self.now + 1e-6)
            for one in here:
                if len(one.token_ids) >= tokens:
                    one.state = State.ENDED
            here = [one for one in here if one.state is not State.ENDED]

    def tokens(self, key: str, begin_s: float, end_s: float) -> int:
        """Return how many tokens a stream got in a time."""
        return sum(begin_s <= at_s < end_s for at_s in self.times_s.get(key, ()))

    def _new_stream(self, of_class: SloClass) -> StreamGeneration:
        self.answered += 1
        key = f"s{self.answered}"
        asked = (ChatMessage("user", "hello"),)
        request = StreamRequest(key, f"agent-{key}", asked, of_class.slo, of_class.weight)
        made = StreamGeneration(key, request, self.now, PROMPT_TOKENS, PROMPT_TOKENS)
        made.max_tokens = 4096
        return made

    def _step(self, entries: dict[str, int], here: Collection[StreamGeneration]) -> None:
        parts = [stream for stream in here if stream.key in entries]
        rows = sum(entries[stream.key] == 1 for stream in parts)
        prefill = sum(tokens for tokens in entries.values() if tokens > 1)
        seconds = self.step_time.predict_s(rows, prefill, sum(s.context_tokens for s in parts))
        self.now += seconds
        self.busy_s += seconds
        for stream in parts:
            stream.state = State.RUNNING
            tokens = entries[stream.key]
            stream.context_tokens += tokens
            stream.to_compute -= tokens
            if stream.to_compute == 0:
                stream.to_compute = 1
                stream.token_ids.append(0)
                stream.token_arrived(self.now)
                self.times_s.setdefault(stream.key, []).append(self.now)


ROOMY = Capacity(free_tokens=1_000_000, max_rows=256, max_step_tokens=2048)
YEAR_S = 366 * 86_400.0
SCENES = 100
"""Random demands on the serving loop."""
STEPS = 1500
TOKENS = 12
"""Tokens of each answer."""
LATE = 0.02
"""Share by which a year of the clock may change what is served."""
LEARNED = 4 * 4 * 256 + 600
"""Values that a policy may keep of what it has served."""
KEPT_OF_EACH = 0.25
"""Values that a policy may keep more for each further request: windows fill up."""
check = POLICY_CHECKS.check


@check
def everyone_is_served(bench: PolicyBench) -> None:
    """In the serving loop every request ends, with the answer that it would have alone."""

    def served(requests: list[Demand], engine: EngineShape) -> None:
        serve(bench.make(), requests, engine)

    for_all(served, bench.seed, SCENES, described, requests=demands(), engine=shapes)


@check
def a_year_later(bench: PolicyBench) -> None:
    """After a year of the clock a policy serves as many requests as at its beginning."""
    check_a_year_later(bench, STEPS)


@check
def forgets_what_ended(bench: PolicyBench) -> None:
    """A policy keeps no more the more requests have ended."""
    check_forgets(bench, STEPS)


def check_a_year_later(bench: PolicyBench, steps: int) -> None:
    """Check `a_year_later` for some steps."""
    served = []
    for begin_s in (0.0, YEAR_S):
        crowd = Listeners(bench.make(), DEAR_ROWS, ROOMY, now=begin_s)
        crowd.serve_and_end(steps, TOKENS)
        served.append(crowd.answered)
    expect(
        math.isclose(served[0], served[1], rel_tol=LATE),
        f"in {steps} steps {served[0]} requests are served at the clock's beginning and"
        f" {served[1]} after a year",
    )


def check_forgets(bench: PolicyBench, steps: int) -> None:
    """Check `forgets_what_ended` after twice some steps, and after twice as many."""
    policy = bench.make()
    crowd = Listeners(policy, DEAR_ROWS, ROOMY)
    held, served = [], []
    for _ in range(2):
        crowd.serve_and_end(2 * steps, TOKENS)
        ask(policy, crowd.now, [], DEAR_ROWS, ROOMY)
        package = type(policy).__module__.split(".")[0]
        held.append(sizes(policy, packages=(*OURS, package)))
        served.append(crowd.answered)
    most = {place: count for place, count in held[1].items() if count}
    expect(
        held[1].total() - held[0].total() <= KEPT_OF_EACH * (served[1] - served[0]),
        f"after {served[0]} requests {held[0].total()} values are kept, after {served[1]} requests"
        f" {held[1].total()}: {most}",
    )
    expect(held[1].total() < LEARNED, f"{held[1].total()} values are kept: {most}")
