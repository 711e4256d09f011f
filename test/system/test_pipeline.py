"""A plan server with an engine in two stages: clients see what they see of one stage."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from itertools import dropwhile, pairwise
from pathlib import Path
from typing import Any

import pytest

from test.system.conftest import Start
from test.system.ros_client import FIND, LONG, serving
from test.system.ros_talker import Talker
from timely_llm import msg
from timely_llm.core.events.reader import LogReader
from timely_llm.core.events.schema import StepEvent
from timely_llm.core.request import ErrorCode

WAIT_S = 60.0
PACE = f"measured:{Path(__file__).with_name('two_stages.yaml')}"
PLANS = {f"robot-{number}": (FIND, LONG)[number % 2] for number in range(6)}
SIMULATED = {"engine": "simulated", "publish_steps": "true", "stats_period_s": 0.1}


@dataclass
class Seen:
    """What clients saw of a server.

    Attributes:
        plans: text and segments of each plan, by request id.
        answer: text and tokens of a person's answer.
    """

    plans: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    answer: tuple[str, list[str]] = ("", [])
    steps: list[msg.EngineStep] = field(default_factory=list)
    stats: list[msg.ServerStats] = field(default_factory=list)


def has_ended(client: Talker, name: str) -> bool:
    return any(one.final for one in client.of(name))


def seen_of(start: Start, domain: int, **parameters: Any) -> Seen:
    """Ask a server for plans and an answer at once; it ends at Ctrl-C without a fault."""
    seen = Seen()
    with serving(start, Talker, domain, **SIMULATED | parameters) as client:
        client.node.create_subscription(msg.EngineStep, "plan_server/steps", seen.steps.append, 256)
        client.wait_for_server()
        sent = [client.send(client.goal(name, agent=name, task=task)).get_result_async()
                for name, task in PLANS.items()]  # fmt: skip
        answer = client.answer("person")
        for name, result in zip(PLANS, map(client.result, sent), strict=True):
            made = result.result
            assert (made.error_code, made.error_msg) == (ErrorCode.NONE, "")
            client.until(partial(has_ended, client, name))
            by_index = {one.index: one.text for one in client.of(name)}
            seen.plans[name] = made.plan, [by_index[index] for index in sorted(by_index)]
        client.until(lambda: any(one.final for one in client.tokens_of("person")))
        seen.answer = answer.text, [one.text for one in client.tokens_of("person")]
        client.until(lambda: bool(seen.steps))
        client.until(lambda: client.stats[-1].steps > 0)
        seen.stats = client.stats
    return seen


def test_plans_and_answers_of_two_stages_are_those_of_one(
    start: Start, domain: int, tmp_path: Path
) -> None:
    log = tmp_path / "server.jsonl"
    one = seen_of(start, domain, pace="millisecond")
    # As many micro-batches as stages; the number of other rules depends on measured times.
    two = seen_of(start, domain, pace=PACE, micro_batching="budget-only", event_log=log)
    assert two.plans == one.plans
    assert all("".join(texts) == plan for plan, texts in two.plans.values())
    assert two.answer == one.answer and "simulated" in two.answer[0]

    assert not any(step.stages for step in one.steps)
    assert two.steps and all(len(step.stages) == 2 for step in two.steps)
    for first, second in (step.stages for step in two.steps):
        assert first.compute >= 0.006 and second.compute >= 0.004
        assert first.link >= 0.001 and second.link == 0.0
        assert first.blocked == second.blocked == first.link, "a transfer blocks both its stages"
        assert second.begin >= first.begin + first.compute + first.link - 1e-9
    *_, last = two.stats
    assert all(0.0 < use.compute <= 1.0 and 0.0 <= use.idle < 1.0 for use in last.stages)
    assert last.stages[0].link > 0.0
    assert not any(message.stages for message in one.stats)
    # The last words of the server before may come first.
    said = list(dropwhile(lambda message: not message.stages, two.stats))
    assert said and all(len(message.stages) == 2 for message in said)

    logged = [event for event in LogReader(log).read() if isinstance(event, StepEvent)]
    assert logged and all(event.stages is not None for event in logged)
    overlapped = [later.t < before.t + before.s for before, later in pairwise(logged)]
    assert any(overlapped), "a step begins while another stage has the one before"


@pytest.mark.extended
def test_each_rule_of_micro_batches_serves(start: Start, domain: int) -> None:
    plans = seen_of(start, domain, pace=PACE, micro_batching="off").plans
    for rule, most in (("auto", 0), ("paper", 4), ("throttle", 0)):
        made = seen_of(start, domain, pace=PACE, micro_batching=rule, micro_batches=most)
        assert made.plans == plans, rule


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (
            {"micro_batching": "even"},
            "must be one of auto, off, budget-only, paper, throttle, fixed-chunk, cycle,"
            " cycle-kept, cycle-due, cycle-own, not",
        ),
        ({"micro_batches": 1}, "micro_batches must be at least the number of stages, 2, not 1"),
        ({"micro_batches": -1}, "parameter micro_batches must be from 0 to 256"),
        ({"micro_batches": 4, "pace": "millisecond"}, "so only 0 is allowed"),
        ({"engine": "transformers", "pace": "two-boxes"}, "choose a pace of one stage"),
        ({"pace": "measured:/no/such"}, "is no file"),
    ],
)
def test_a_wrong_value_is_one_sentence_with_what_is_allowed(
    start: Start, parameters: dict[str, object], words: str
) -> None:
    server = start("plan_server", **SIMULATED | {"pace": PACE} | parameters)
    assert server.wait(WAIT_S) == os.EX_CONFIG
    last = server.output.splitlines()[-1]
    assert last.startswith("plan_server: ") and words in last
    assert "Traceback" not in server.output
