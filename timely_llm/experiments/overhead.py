"""`timelyllm-overhead`: what segments and scheduling cost the server (paper 001, Tables 4, 5)."""

from __future__ import annotations

from statistics import median

from timely_llm.benchmarks import scheduler
from timely_llm.core.documents import load_document
from timely_llm.engines.contract import Engine
from timely_llm.engines.profiles import DEFAULT_PROFILE, PROFILES
from timely_llm.engines.registry import make_engine
from timely_llm.experiments.contract import Experiment, ExperimentError, Options
from timely_llm.experiments.document import Paper, Row, RunDocument
from timely_llm.experiments.policy_spec import chosen
from timely_llm.experiments.segmented_pair import Pair, Paired
from timely_llm.experiments.sources import shipped_skill_sets
from timely_llm.experiments.stage import Progress
from timely_llm.policies.registry import make_policy
from timely_llm.resources import resource
from timely_llm.traces.model import TraceError
from timely_llm.traces.tasks import TraceTasks

MODEL = "models/tiny_planner"
SKILL_SET = "drone"
PASSES = 12
"""Pairs of generations of each plan, of which a row has the medians."""

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
    "case": "the plan of a task, or how many requests are being served",
    "overhead_ms": "milliseconds of the CPU: of a plan with segments, less those of the same plan"
    " without; or of one decision of the policy, priorities and choice",
    "overhead_share": "of the plan's generation with segments",
    "paced_share": "of the plan's generation if steps took as long as those of Llama 3 8B on an RTX"
    " 4090",
    "generation_ms": "milliseconds of the CPU, of the plan with segments",
    "tokens": "tokens of the plan",
    "segments": "segments of the plan",
    "turn_ms": "milliseconds of the CPU of a turn of the loop, without the engine's step",
}


def _requests(number: int) -> str:
    return f"{number} request{'s' if number > 1 else ''}"


NOTES = (
    "The plans are the embedded model's own for the eight drone tasks. Both generations run in the"
    " serving loop itself, a turn of the one after a turn of the other; the one without segments"
    " has no stop checker, so that nothing is parsed, delivered or suspended.",
    "Requests of the second part are served by the loop in virtual time, some running and some"
    " suspended, one in four urgent.",
)

TABLE_4 = Paper(
    title="Paper 001, Table 4 and §7.5.1",
    note="Plans of Llama 3 8B on an RTX 4090 in vLLM; without segments: the same generated in a"
    " separate test. Its overhead holds the stop checker, and caching and retrieval of token ids"
    " and KV: here KV stays where it is.",
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
    title="Paper 001, Table 5 and §7.5.2",
    note="Updating the priorities of a queue between processes, and fetching one task.",
    rows=tuple(
        {"part": SCHEDULING, "policy": "timely", "case": _requests(number), "overhead_ms": ms}
        for number, ms in zip(QUEUES, (0.58, 0.83, 1.25, 1.58, 2.03), strict=True)
    ),
)


def run(options: Options, progress: Progress) -> RunDocument:
    """Return what segments cost the plans of eight tasks, and scheduling requests at a time.

    Every seed is another round of the same measurement.

    Raises:
        TimelyError: a policy has options, or the model cannot be run or makes no plan.
    """
    policies = [spec.name for spec in chosen(options)]
    if policies != list(options.policies):
        raise ExperimentError("the overhead is that of policies as they are: name no options")
    rows: list[Row] = []
    engine = make_engine("transformers", model=resource(MODEL), device="cpu", threads=1)
    try:
        for seed in range(options.seeds):
            for place, policy in enumerate(policies):
                progress(seed * len(policies) + place, options.seeds * len(policies))
                found = [*_segmentation(engine, policy), *_scheduling(policy)]
                rows += [{"policy": policy, "seed": seed, **_EMPTY, **row} for row in found]
    finally:
        engine.close()
    progress(1, 1)
    return RunDocument(
        experiment=EXPERIMENT.name,
        question=EXPERIMENT.question,
        profile="transformers, the embedded model",
        setup={
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
    """Return what the segments of one plan cost."""
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
        for row in scheduler.rows((policy,), QUEUES, (False,), TURNS)
    ]


EXPERIMENT = Experiment(
    name="timelyllm-overhead",
    question="What do stop checking, suspension and scheduling cost the server? (paper 001, Tables"
    " 4 and 5)",
    run=run,
    defaults=Options(policies=("timely", "deadline")),
    understands=frozenset({"policies", "seeds"}),
)
