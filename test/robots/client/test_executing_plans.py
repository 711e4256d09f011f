"""The code in the documents on executing plans does what its text says."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from test.robots.client.random_plans import ROVER, Called, Fate, Maker
from test.robots.client.scripted_server import ScriptedServer
from test.robots.client.test_random_executions import reference
from timely_llm.core.request import ErrorCode
from timely_llm.resources import resource
from timely_llm.robots.client.call_log import CallLog
from timely_llm.robots.client.pending import PlanClientError, ServerLost
from timely_llm.skills.callables import Callables
from timely_llm.skills.skill_set import parse_skill_set

DOCS = resource("package.xml").parent / "docs"


def block(file: str, language: str, words: str) -> str:
    """Return the code block of a document that contains these words."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", (DOCS / file).read_text(), re.M | re.S)
    (found,) = [text for text in blocks if words in text]
    return str(found)


@pytest.mark.parametrize("part", range(4))
def test_the_executor_of_the_document_makes_the_calls_of_the_reference(part: int) -> None:
    names: dict[str, Any] = {}
    exec(block("executing_plans.md", "python", "def follow("), names)
    for seed in range(part, 400, 4):
        rng = random.Random(seed)
        maker = Maker(rng)
        plans = [maker.plan() for _ in range(rng.randrange(1, 4))]
        fate = Fate(tuple(rng.randrange(1000) for _ in range(97)))
        server = ScriptedServer(ROVER, [maker.text(plan) for plan in plans], rng)
        made: list[Called] = []

        class Robot:
            def __getattr__(self, name: str) -> Any:
                def do(*arguments: Any) -> object:
                    made.append((name, arguments))  # noqa: B023
                    server.disturb()  # noqa: B023
                    return fate.of(len(made) - 1, name)  # noqa: B023

                return do

        expected, _, failures = reference(plans, fate)
        try:
            result = names["follow"](server.start(), ROVER, Robot())
        except PlanClientError as error:
            assert (failures, error.code) == (len(plans), ErrorCode.EXECUTION_FAILED), seed
        else:
            assert (result.error_code, result.epoch) == (ErrorCode.NONE, failures), seed
        assert made == expected, seed


def test_the_rover_of_the_tutorial_has_all_its_skills() -> None:
    rover = parse_skill_set(block("tutorial.md", "yaml", "name: rover"))
    names: dict[str, Any] = {}
    exec(block("tutorial.md", "python", "class Rover").partition("with PlanClient")[0], names)
    Callables(rover, names["Rover"]())


class Robot:
    def __init__(self) -> None:
        self.said: list[str] = []

    def log(self, words: str) -> None:
        self.said.append(words)


class Client:
    """A client of servers that die `deaths` times; it resumes nothing."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths
        self.asked: list[str] = []
        self.waited = 0

    def execute(self, task: str, robot: Robot) -> str:
        self.asked.append(task)
        if len(self.asked) <= self.deaths:
            raise ServerLost("the server died")
        return "done"

    def wait_for_server(self, timeout_s: float) -> None:
        self.waited += 1

    def resume(self, request_id: str) -> None:
        raise PlanClientError(f"no request {request_id!r} is being served")


def test_the_document_tries_the_next_server() -> None:
    names: dict[str, Any] = {}
    exec(block("executing_plans.md", "python", "def keep_trying("), names)
    client, robot = Client(2), Robot()
    assert names["keep_trying"](client, lambda: f"task {len(client.asked)}", robot) == "done"
    assert client.asked == ["task 0", "task 1", "task 2"]
    assert client.waited == 2
    assert robot.said == ["the server died; 0 calls were made"] * 2


def test_the_document_goes_on_with_the_plan_of_a_former_life() -> None:
    names: dict[str, Any] = {}
    exec(block("executing_plans.md", "python", "def go_on("), names)
    log, robot = CallLog(), Robot()
    assert names["go_on"](Client(0), log, robot) is None
    assert robot.said == []
    log.begin("r")
    assert names["go_on"](Client(0), log, robot) is None
    assert robot.said == ["the plan of before is lost: no request 'r' is being served"]
