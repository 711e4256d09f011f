"""The cost of detecting segment boundaries, per token (Ling et al. 2024, Table 4)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from timely_llm.core.generation import PlanGeneration
from timely_llm.core.request import PlanRequest
from timely_llm.core.step import StepPlan
from timely_llm.engines.contract import Engine, Tokenizer
from timely_llm.engines.registry import make_engine
from timely_llm.engines.simulated import DEFAULT_PROFILE, PROFILES
from timely_llm.resources import EMBEDDED_MODEL, resource
from timely_llm.serving.delivery import PlanDelivery
from timely_llm.skills.minispec.checker import MiniSpecChecker
from timely_llm.skills.skill_set import SkillSet, load_skill_set

TRACES = (
    "?s('cat')==True{g('cat')};",
    "?iv('keys')&iv('wallet')->{l('Yes');->True}l('No');->False",
    "mu(40);?iv('book')==True{tp()}->False",
    "md(40);?iv('toy')==True{g('toy')}->False",
    "?iv('scissors')==True{l('Yes');->True}->False",
    "tc(45);",
    "tc(30);",
    "?iv('boy')==True{tc(45)}->False;",
)
"""Plans like those that Llama 3 8B makes for the eight tasks of the paper's drone traces."""


def rows(
    repeats: int = 200,
    decode_steps: int = 50,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Return the cost of delivery per token, for each of eight plans.

    Delivery is all work from a token id to a published segment: text, stop checker, arguments,
    predicted durations, due times. The paper's Table 4 excludes the work that generation without
    segments needs too, so it excludes the text.

    Args:
        repeats: deliveries of each plan.
        decode_steps: measured steps of the embedded engine with one sequence.
        progress: called with the finished and the total number of plans.

    Returns:
        Rows of `trace, plan, tokens, segments, token_us, step_share, embedded_share`: the median
        microseconds a token, and their share of a decode step with one sequence, of Llama 3 8B on
        an RTX 4090 and of the embedded model on this machine.
    """
    drone = load_skill_set(resource("config/skill_sets/drone.yaml"))
    engine = make_engine("transformers", model=resource(EMBEDDED_MODEL))
    try:
        embedded_s = _decode_s(engine, decode_steps)
        step_s = PROFILES[DEFAULT_PROFILE].step_s(rows=1)
        made = []
        for trace, plan in enumerate(TRACES, start=1):
            token_ids = engine.tokenizer.encode(plan)
            reads = [_read(token_ids, engine.tokenizer, drone) for _ in range(repeats)]
            token_s = statistics.median(spent_s for spent_s, _ in reads) / (len(token_ids) + 1)
            made.append(
                {
                    "trace": trace,
                    "plan": plan,
                    "tokens": len(token_ids) + 1,
                    "segments": reads[0][1],
                    "token_us": round(1e6 * token_s, 2),
                    "step_share": round(token_s / step_s, 6),
                    "embedded_share": round(token_s / embedded_s, 6),
                }
            )
            progress(trace, len(TRACES))
        return made
    finally:
        engine.close()


def _read(token_ids: list[int], tokenizer: Tokenizer, skill_set: SkillSet) -> tuple[float, int]:
    """Deliver a plan and the token that ends it; return the seconds and the segments."""
    request = PlanRequest("r", "agent", skill_set.name, "a task")
    generation = PlanGeneration("r", request, 0.0, prompt_tokens=100, to_compute=100)
    delivery = PlanDelivery(generation, tokenizer, MiniSpecChecker(skill_set), whole=False)
    start_s = time.perf_counter()
    for token_id in (*token_ids, min(tokenizer.eos_ids)):
        delivery.push(token_id, start_s)
    return time.perf_counter() - start_s, len(generation.segments)


def _decode_s(engine: Engine, steps: int) -> float:
    """Return the median seconds of a step that decodes one sequence."""
    prompt = engine.tokenizer.encode_chat([{"role": "user", "content": "Scene: [chair]"}])
    to_compute = engine.add("one", prompt).to_compute
    durations_s = []
    for tokens in (to_compute, *[1] * steps):
        engine.submit(StepPlan((("one", tokens),)))
        durations_s.append(engine.collect().duration_s)
    engine.remove("one")
    return statistics.median(durations_s[1:])
