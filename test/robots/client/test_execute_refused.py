"""What `execute` refuses: skills that do not fit, and segments that break the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from test.robots.client.random_plans import ROVER, ROVER_YAML
from test.robots.client.rover import SOON_S, Nobody, Rover, offered, reasons, run
from test.robots.client.scripted_server import ScriptedServer
from test.skills.plans import DRONE
from timely_llm.core.request import ErrorCode, PlanResult
from timely_llm.core.segment import Segment
from timely_llm.robots.client.pending import PlanClientError
from timely_llm.robots.client.plan_task import PlanTask
from timely_llm.skills.skill_set import SkillSet, parse_skill_set

# Skills that do not fit.


def refusal(skills: object, skill_set: SkillSet = ROVER, **options: Any) -> str:
    server = ScriptedServer(skill_set, ["go(10);"]) if skill_set is ROVER else None
    task = server.start() if server else PlanTask("r", "me", Nobody(), skill_set.name)
    with pytest.raises(PlanClientError) as raised:
        task.execute(skills, skill_set=skill_set, timeout_s=SOON_S, **options)
    assert not server or (server.reports, server.canceled) == ([], 0)
    return str(raised.value)


def test_skills_without_a_callable_are_refused_before_anything_is_done() -> None:
    rover = Rover()
    names = {name: getattr(rover, name) for name in ("go", "say")}
    assert refusal(names | {"sea": rover.sees}) == (
        "skills of 'rover' have no callable: tilt, sees, count, read, scan, free"
        " (given: go, say, sea)"
    )
    assert refusal(object()).startswith("skills of 'rover' have no callable: go, say, tilt")
    assert refusal({}).endswith("scan, free (given: none)")
    assert rover.made == []


def test_skills_that_are_absent_fail_and_say_so() -> None:
    server = ScriptedServer(ROVER, ["go(10);say('a');", "go(20);"])
    rover = Rover()
    skills = {name: getattr(rover, name) for name in ROVER.skills if name != "say"}
    run(server, skills, absent=["say"])
    assert reasons(server) == ["this robot has no skill say"]
    assert rover.made == ["go(10)", "go(20)"]
    assert refusal(skills, absent=["sya"]).startswith("skill set 'rover' has no skill sya that")


def test_otherwise_takes_the_calls_of_all_other_skills() -> None:
    taken: list[str] = []
    rover = Rover()
    run(ScriptedServer(ROVER, ["go(10);say('a');"]), {"go": rover.go},
        otherwise=lambda call: taken.append(str(call)))  # fmt: skip
    assert (rover.made, taken) == (["go(10)"], ["say('a')"])


async def _promise(distance: int) -> None: ...


def _stepwise(distance: int) -> Any:
    yield distance


@pytest.mark.parametrize(
    ("go", "words"),
    [
        (7, "the callable of go must be callable, not int"),
        (lambda: 0, "the callable of go must take 1 argument by position (distance), not ()"),
        (
            lambda a, b: 0,
            "the callable of go must take 1 argument by position (distance), not (a, b)",
        ),
        (
            Rover.go,
            "the callable of go must take 1 argument by position (distance), not (self, distance",
        ),
        (_promise, "the callable of go is a coroutine: plain functions are executed"),
        (_stepwise, "the callable of go is a generator: plain functions are executed"),
    ],
)
def test_a_callable_that_cannot_be_called_as_plans_do_is_refused(go: Any, words: str) -> None:
    rover = Rover()
    skills = {name: getattr(rover, name) for name in ROVER.skills}
    assert refusal(skills | {"go": go}).startswith(words)


def test_another_skill_set_than_the_plans_is_refused(tmp_path: Path) -> None:
    task = ScriptedServer(ROVER, ["go(10);"]).start()
    with pytest.raises(PlanClientError, match="of 'rover', not of the skill set 'drone'"):
        task.execute(Rover(), skill_set=DRONE)
    with pytest.raises(PlanClientError, match="cannot read"):
        task.execute(Rover(), skill_set=tmp_path / "none.yaml")
    path = tmp_path / "rover.yaml"
    path.write_text(ROVER_YAML)
    assert task.execute(Rover(), skill_set=str(path), timeout_s=2.0).plan == "go(10);"


@pytest.mark.parametrize("language", ["sentence", "regex"])
def test_statements_without_a_skill_go_to_otherwise(language: str) -> None:
    rules = {"sentence": "language: sentence", "regex": "language: regex\nrules: ['[A-Z]+\\.']"}
    story = parse_skill_set(f"name: story\nprompt: Write.\n{rules[language]}\n")
    words = "have statements without a skill: pass otherwise="
    assert words in refusal({}, story)
    told: list[object] = []
    task = PlanTask("r", "me", Nobody(), "story")
    for index, text in enumerate(("ONE.", " TWO.")):
        task.offer(Segment("r", "me", index, text, final=index == 1))
    task.finish(PlanResult("r", "me", ErrorCode.NONE, "", "ONE. TWO."))
    task.execute({}, skill_set=story, otherwise=lambda call: told.append(call.arguments[0]))
    assert [str(text).strip() for text in told] == ["ONE.", "TWO."]


# What comes is checked again.


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("go(9);", "distance must be 10 to 500, not 9"),
        ("go('far');", "distance must be a number, not the text 'far'"),
        ("say('a');fly();", "unknown skill 'fly'"),
        ("say('a');go(501);say('b');", "distance must be 10 to 500, not 501"),
        ("tilt(0,'" + "x" * 41 + "');", "longer than 40"),
    ],
)
def test_nothing_of_a_segment_that_breaks_the_rules_is_executed(text: str, words: str) -> None:
    rover = Rover()
    task, _ = offered("go(10);", text)
    with pytest.raises(PlanClientError, match=words.replace("(", r"\(")):
        task.execute(rover, skill_set=ROVER, timeout_s=1.0)
    assert rover.made == ["go(10)"]


def test_a_last_segment_that_comes_again_with_a_call_more_is_refused() -> None:
    rover = Rover()
    task, _ = offered("?sees('a'){", "go(10);", final=False)
    rover.values["sees"] = True
    rover.values["go"] = lambda: task.offer(Segment("r", "me", 1, "go(10);}go(500);", final=True))
    with pytest.raises(PlanClientError, match="segment 1 came again with other words"):
        task.execute(rover, skill_set=ROVER, timeout_s=1.0)
    assert rover.made == ["sees('a')", "go(10)"]


def test_a_segment_is_executed_once_however_often_it_comes() -> None:
    rover = Rover()
    server = ScriptedServer(ROVER, ["go(10);say('a');"])

    def again() -> None:
        for segment in server._plan * 2:
            server.task.offer(segment)

    rover.values["go"] = rover.values["say"] = again
    run(server, rover)
    assert rover.made == ["go(10)", "say('a')"]


def test_segments_that_got_lost_are_made_up_for_by_the_result() -> None:
    rover = Rover(sees=False)
    task = PlanTask("r", "me", Nobody(), "rover")
    task.offer(Segment("r", "me", 0, "2{go(10);"))
    task.offer(Segment("r", "me", 3, "say('b');", final=True))
    plan = "2{go(10);?sees('a'){say('no');}}say('b');"
    task.finish(PlanResult("r", "me", ErrorCode.NONE, "", plan, 4))
    assert task.execute(rover, skill_set=ROVER).plan == plan
    assert rover.made == ["go(10)", "sees('a')"] * 2 + ["say('b')"]


@pytest.mark.parametrize("plan", ["go(20);say('b');", "2{go(10);say('b');"])
def test_a_whole_plan_that_does_not_fit_is_not_executed(plan: str) -> None:
    rover = Rover()
    task = PlanTask("r", "me", Nobody(), "rover")
    task.offer(Segment("r", "me", 0, "2{go(10);"))
    task.finish(PlanResult("r", "me", ErrorCode.NONE, "", plan, 4))
    with pytest.raises(PlanClientError, match=r"a segment failed \(.*\) after its request"):
        task.execute(rover, skill_set=ROVER, timeout_s=1.0)
    assert rover.made == ["go(10)"]
