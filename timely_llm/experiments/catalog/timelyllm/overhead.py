"""`timelyllm-overhead`: the cost of segments and scheduling (Ling et al. 2024, Tables 4 and 5)."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from statistics import median

from timely_llm.benchmarks import scheduler
from timely_llm.core.clock import WallClock
from timely_llm.core.documents.read import load_document
from timely_llm.core.events.run_event import RunEvent
from timely_llm.core.events.schema import EndEvent
from timely_llm.core.generation import PlanGeneration
from timely_llm.core.request import PlanRequest, PlanResult, Request
from timely_llm.engines.contract import Engine
from timely_llm.engines.registry import make_engine
from timely_llm.engines.simulated import DEFAULT_PROFILE, PROFILES
from timely_llm.experiments.contract import (
    Experiment,
    ExperimentError,
    ModelOptions,
    Options,
    ReportProgress,
)
from timely_llm.experiments.policy_spec import chosen
from timely_llm.experiments.results.document import Paper, Row, RunDocument
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.policies.contract import Policy
from timely_llm.policies.registry import make_policy
from timely_llm.resources import resource
from timely_llm.serving.delivery import PlanDelivery
from timely_llm.serving.loop import Loop
from timely_llm.serving.publisher import Stats
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Piece
from timely_llm.traces.model import TraceError
from timely_llm.traces.tasks import TraceTasks

MOST_TOKENS = 256


@dataclass(frozen=True)
class Paired:
    """The cost of a plan.

    Attributes:
        segmented_s, plain_s: CPU seconds of all turns of the loop, with and without segments.
        tokens, segments: counts of the plan.
        prompt_tokens: tokens of its prompt, without the shared prefix.
    """

    segmented_s: float
    plain_s: float
    tokens: int
    segments: int
    prompt_tokens: int


class Pair:
    """Two serving loops on one engine: one detects segments, the other does not.

    The second loop has no stop checker, so it delivers and suspends nothing. All else is the same.

    Args:
        engine: the engine of both; it computes in the calling thread.
        policies: a new policy for each loop.
        skill_set: the skill set of all requests.
    """

    def __init__(
        self, engine: Engine, policies: tuple[Policy, Policy], skill_set: SkillSet
    ) -> None:
        clock = WallClock()
        self.segmented = _Counted(Loop(engine, policies[0], clock))
        self.plain = _Counted(_PlainLoop(engine, policies[1], clock))
        for side in (self.segmented, self.plain):
            shared = side.loop.register(skill_set)
        self._shared_tokens = shared
        self._skill_set = skill_set.name
        self._ids = count()

    def generate(self, task: str) -> Paired:
        """Return the cost of a plan in both loops, which take turns; each is first half the time.

        Raises:
            ExperimentError: the model makes no plan for the task.
        """
        tokens = self._tokens(task)
        self._ask(self.segmented, task, tokens)
        self._ask(self.plain, task, tokens)
        spent_s = [0.0, 0.0]
        order = [(0, self.segmented), (1, self.plain)]
        while self.segmented.loop.generations or self.plain.loop.generations:
            for place, side in order:
                if side.loop.generations:
                    spent_s[place] += side.turn_s()
            order.reverse()
        made = self._result(task)
        own_tokens = made.prompt_tokens - self._shared_tokens
        return Paired(spent_s[0], spent_s[1], tokens, made.segments, own_tokens)

    def _tokens(self, task: str) -> int:
        """Return the number of tokens of the plan."""
        self._ask(self.segmented, task)
        while self.segmented.loop.generations:
            self.segmented.turn_s()
        return self._result(task).generated_tokens

    def _ask(self, side: _Counted, task: str, most_tokens: int = MOST_TOKENS) -> None:
        name = f"r{next(self._ids)}"
        side.loop.admit(PlanRequest(name, name, self._skill_set, task, max_tokens=most_tokens))
        side.take(side.loop.take_events())

    def _result(self, task: str) -> PlanResult:
        """Return the result of the last plan with segments."""
        result = self.segmented.result
        if result is None or result.error_code:
            why = result.error_msg if result else "it has no result"
            raise ExperimentError(f"the model makes no plan for {task!r}: {why}")
        return result


class _PlainLoop(Loop):
    """A loop without segments: a plan ends at its largest number of tokens."""

    def admit(self, request: Request, arrival_s: float | None = None) -> None:
        """Take a request into the pool, without a stop checker."""
        super().admit(request, arrival_s)
        generation = self._pool[request.request_id].generation
        if isinstance(generation, PlanGeneration):
            uncut = PlanDelivery(generation, self._engine.tokenizer, _Uncut(), whole=False)
            self._pool[request.request_id] = uncut


class _Uncut:
    """A stop checker that detects no boundary."""

    done = False
    rest = ""
    tail = ""

    def feed(self, text: str) -> list[Piece]:
        return []

    def finish(self) -> tuple[Piece | None, str]:
        return Piece("", (), 0.0, ()), ""


class _Counted:
    """A loop, the counts of its events, and how its last plan ended."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.stats = Stats()
        self.result: PlanResult | None = None

    def take(self, events: Iterable[RunEvent]) -> None:
        """Count what happened."""
        for event in events:
            self.stats.take(event)
            if isinstance(event, EndEvent) and isinstance(event.result, PlanResult):
                self.result = event.result

    def turn_s(self) -> float:
        """Turn until a step was made; return the seconds of that turn."""
        while True:
            start_s = time.thread_time()
            turn = self.loop.turn()
            self.take(turn.events)
            spent_s = time.thread_time() - start_s
            if turn.stepped or not self.loop.generations:
                return spent_s
            if turn.wake_s == math.inf:
                raise ExperimentError("the policy never serves a request that is alone")
            time.sleep(max(turn.wake_s - WallClock().now(), 0.0))


SKILL_SET = "drone"
PASSES = 12
"""Pairs of generations of each plan. A row has their medians."""

QUEUES = (1, 2, 4, 6, 8)
TURNS = 300
SEGMENTATION, SCHEDULING = "segmentation", "scheduling"
KEYS = ("part", "policy", "case")
MEASURES = (
    "overhead_ms",
    "overhead_share",
    "paced_share",
    "generation_ms",
    "tokens",
    "segments",
    "turn_ms",
)

DEFINITIONS = {
    "part": f"{SEGMENTATION}: Table 4; {SCHEDULING}: Table 5",
    "case": "the plan of a task, or the number of requests in service",
    "overhead_ms": "CPU milliseconds: of a plan with segments, less those of the same plan without;"
    " or of one decision of the policy, priorities and choice",
    "overhead_share": "overhead_ms over the plan's generation with segments",
    "paced_share": "overhead_ms over the plan's generation with the step times of Llama 3 8B on an"
    " RTX 4090",
    "generation_ms": "CPU milliseconds of the plan with segments",
    "tokens": "tokens of the plan",
    "segments": "segments of the plan",
    "turn_ms": "CPU milliseconds of a turn of the loop, without the engine's step",
}


def _requests(number: int) -> str:
    return f"{number} request{'s' if number > 1 else ''}"


NOTES = (
    "The embedded model makes the plans for the eight drone tasks. Two serving loops generate each"
    " plan, in alternate turns. The loop without segments has no stop checker: it parses, delivers"
    " and suspends nothing.",
    "In the second part, the loop serves requests in virtual time. Some are running and some"
    " suspended; one in four is urgent.",
)

TABLE_4 = Paper(
    title="Ling et al. 2024, Table 4 and §7.5.1",
    note="Plans of Llama 3 8B on an RTX 4090 in vLLM; without segments, generated in a separate"
    " test. The paper's overhead is the stop checker, and the caching and retrieval of token ids"
    " and KV. Here KV stays in place.",
    rows=tuple(
        {"part": SEGMENTATION, "policy": "timely", "case": f"task {task}", "overhead_ms": ms,
         "overhead_share": percent / 100}
        for task, ms, percent in zip(
            range(1, 9),
            (13.7, 24.1, 19.9, 19.9, 16.0, 13.1, 14.4, 14.8),
            (3.0, 2.6, 5.6, 2.8, 3.2, 3.7, 4.1, 4.2),
            strict=True,
        )
    ),
)  # fmt: skip

TABLE_5 = Paper(
    title="Ling et al. 2024, Table 5 and §7.5.2",
    note="The time to update the priorities of a queue between processes, and to fetch one task.",
    rows=tuple(
        {"part": SCHEDULING, "policy": "timely", "case": _requests(number), "overhead_ms": ms}
        for number, ms in zip(QUEUES, (0.58, 0.83, 1.25, 1.58, 2.03), strict=True)
    ),
)


@dataclass(frozen=True)
class OverheadOptions(Options):
    """Options of `timelyllm-overhead`.

    Attributes:
        policies: names of policies, without options of their own.
        seeds: rounds of the same measurement.
    """

    policies: tuple[str, ...] = ("timely", "deadline")
    seeds: int = 5


def run(options: OverheadOptions, progress: ReportProgress) -> RunDocument:
    """Return the cost of segments for the plans of eight tasks, and the cost of scheduling.

    A seed is a round of the same measurement.
    """
    policies = [spec.name for spec in chosen(options.policies)]
    if policies != list(options.policies):
        raise ExperimentError(
            "the overhead is measured of policies with their defaults: name no options"
        )
    rows: list[Row] = []
    embedded = ModelOptions().model_path
    engine = make_engine("transformers", model=embedded, device="cpu", threads=1)
    try:
        for seed in range(options.seeds):
            for place, policy in enumerate(policies):
                progress(seed * len(policies) + place, options.seeds * len(policies))
                found = [*_segmentation(engine, policy), *_scheduling(policy)]
                rows += [{"policy": policy, "seed": seed, **_EMPTY, **row} for row in found]
    finally:
        engine.close()
    progress(1, 1)
    return EXPERIMENT.document(
        "transformers, the embedded model",
        {
            "engine": "transformers, the embedded model, on one thread of the CPU",
            "rounds": options.seeds,
            "pairs of generations in a round, of which the median counts": PASSES,
            "turns in a round, of which the median counts": TURNS,
        },
        keys=KEYS,
        measures=MEASURES,
        definitions=DEFINITIONS,
        rows=tuple(sorted(rows, key=lambda row: row["part"] == SCHEDULING)),
        papers=(TABLE_4, TABLE_5),
        notes=NOTES,
    )


_EMPTY: Row = dict.fromkeys(MEASURES)


def _segmentation(engine: Engine, policy: str) -> list[Row]:
    """Return a row for the plan of each task."""
    file = resource("config/traces/lrtrace_tasks.yaml")
    tasks = load_document(file, TraceTasks, "task set", TraceError).tasks
    policies = make_policy(policy), make_policy(policy)
    pair = Pair(engine, policies, shipped_skill_sets()[SKILL_SET])
    return [
        _case(f"task {name}", [pair.generate(task.text) for _ in range(PASSES)])
        for name, task in tasks.items()
        if task.skill_set == SKILL_SET
    ]


def _case(name: str, passes: list[Paired]) -> Row:
    """Return the row of the segments of one plan."""
    first, profile = passes[0], PROFILES[DEFAULT_PROFILE]
    overhead_s = median(one.segmented_s - one.plain_s for one in passes)
    generation_s = median(one.segmented_s for one in passes)
    paced_s = profile.step_s(0, first.prompt_tokens) + (first.tokens - 1) * profile.step_s(1)
    return {
        "part": SEGMENTATION,
        "case": name,
        "overhead_ms": 1e3 * overhead_s,
        "overhead_share": overhead_s / generation_s,
        "paced_share": overhead_s / (paced_s + overhead_s),
        "generation_ms": 1e3 * generation_s,
        "tokens": first.tokens,
        "segments": first.segments,
    }


def _scheduling(policy: str) -> list[Row]:
    """Return a row for each number of requests."""
    return [
        {
            "part": SCHEDULING,
            "case": _requests(row["generations"]),
            "overhead_ms": row["plan_us"] / 1e3,
            "turn_ms": row["turn_us"] / 1e3,
        }
        for row in scheduler.rows((policy,), QUEUES, (scheduler.PLANS_ALONE,), TURNS)
    ]


EXPERIMENT = Experiment(
    name="timelyllm-overhead",
    question="What do stop checking, suspension and scheduling cost the server?"
    " (Ling et al. 2024, Tables 4 and 5)",
    run=run,
    defaults=OverheadOptions(),
    reasons={
        "trace": "since it measures an engine with tasks of its own",
        "first_seed": "since its seeds are rounds of one measurement",
    },
)
