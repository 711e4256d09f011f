"""A server under attack: its answers, and the response times of urgent plans beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from timely_llm.benchmarks.server import START_LIMIT_S, start_server
from timely_llm.core.events.probe_events import (
    AttackAnsweredEvent,
    AttackEvent,
    OverEvent,
    ServedEvent,
)
from timely_llm.core.events.reader import LogReader
from timely_llm.core.events.run_event import RunEvent
from timely_llm.processes.children import Children, Interrupts, wait
from timely_llm.processes.nodes import ATTACK_PROBE, local_environment, random_domain, ros_command
from timely_llm.skills.skill_set import MAX_PROMPT_CHARACTERS

Fields = dict[str, Any]


@dataclass(frozen=True)
class Attack:
    """One input of the server.

    Attributes:
        name: name in the table.
        to: a service or topic; the server's own as `~/NAME`.
        kind: type of the interface, as PACKAGE/srv/NAME or PACKAGE/msg/NAME.
        fields: makes the fields of the request or message; nested messages are dicts.
        times: number of copies that are sent at once.
        answer: topic of the answers, by `request_id`, as `~/NAME`; empty if none is expected.
        answer_kind: type of the answers.
        undo: name of a skill set that is unregistered afterwards.
    """

    name: str
    to: str
    kind: str
    fields: Callable[[], Fields]
    times: int = 1
    answer: str = ""
    answer_kind: str = ""
    undo: str = ""


def _register(name: str, yaml: Callable[[], str], **more: Any) -> Attack:
    kind = "timely_llm/srv/RegisterSkillSet"
    return Attack(name, "~/register_skill_set", kind, lambda: {"yaml": yaml()}, **more)


def _submit(name: str, request: Callable[[], Fields], **more: Any) -> Attack:
    fields = {"agent": "attacker", "skill_set": "drone", "task": "Look around."}
    kind = "timely_llm/srv/SubmitPlan"
    return Attack(name, "~/submit_plan", kind, lambda: {"request": fields | request()}, **more)


def _claim(name: str, value: str, **more: Any) -> Attack:
    fields = {"key": "0", "value": value}
    return Attack(name, "plan/_claim", "diagnostic_msgs/msg/KeyValue", lambda: fields, **more)


def _converse(name: str, fields: Callable[[], Fields]) -> Attack:
    return Attack(
        name, "~/stream_requests", "timely_llm/msg/StreamRequest",
        lambda: {"agent": "attacker", "request_id": "attack"} | fields(),
        answer="~/stream_results", answer_kind="timely_llm/msg/StreamResult",
    )  # fmt: skip


def merges() -> str:
    """Return 1 kB of YAML with nested merges that double thirty times."""
    lines = [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}" for i in range(1, 31)]
    return "\n".join(["a0: &a0 {k: v}", *lines])


def laughs() -> str:
    """Return 1 kB of YAML with aliases that expand to 10^12 values."""
    lines = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 13)]
    return "\n".join(["a0: &a0 [ha, ha]", *lines])


def skill_set(name: str = "attack", **values: Any) -> str:
    """Return a small skill set; `values` are further fields as YAML."""
    more = "".join(f"{key}: {value}\n" for key, value in values.items())
    go = "{description: go, duration: {polynomial: [1]}}"
    return f"name: {name}\nprompt: You control a cart.\nskills: {{go: {go}}}\n{more}"


def rules(*patterns: str) -> str:
    """Return a skill set with rules."""
    return skill_set(language="regex", rules="[" + ", ".join(f"'{p}'" for p in patterns) + "]")


def long_prompt(characters: int) -> str:
    """Return a valid skill set with a prompt of about `characters` characters."""
    words = "stay in the lab and go slowly; " * ((characters - 100) // 31)
    return skill_set(guidance=f'["{words}"]')


ATTACKS = (
    _register("a lone surrogate", lambda: skill_set(description=r'"\uD800"')),
    _register("a NUL", lambda: skill_set(description=r'"a\0b"')),
    _register("1 kB of nested merges", merges),
    _register("1 kB of nested aliases", laughs),
    _register("100 kB of brackets", lambda: "[" * 100_000),
    _register("10 MB of plain YAML", lambda: "- a\n" * 2_500_000),
    _register("256 kB of plain YAML", lambda: "- a\n" * 65_000),
    _register("9,900 skills", lambda: skill_set() + "".join(f"k{i}: 1\n" for i in range(4900))),
    _register("a rule that calls itself", lambda: rules("(?P<x>(?&x)?a);")),
    _register("a rule with large counts", lambda: rules("(?:a?){1000000};")),
    _register("64 long rules", lambda: rules(*["(?:a|b)*c[d-z]{1,9}" * 6] * 64), undo="attack"),
    _register("a prompt of 4,000 characters", lambda: long_prompt(4000), undo="attack"),
    _register("the longest prompt", lambda: long_prompt(MAX_PROMPT_CHARACTERS), undo="attack"),
    _register("20 skill sets at once", lambda: rules("(", "("), times=20),
    _submit("a task of 5 MB", lambda: {"task": "x" * 5_000_000}),
    _submit("a skill set's name of 5 MB", lambda: {"skill_set": "x" * 5_000_000}),
    _submit("an agent's name with a line end", lambda: {"agent": "a\nERROR b"}),
    _converse("a message of 65,000 characters", lambda: {"prompt": "Go on, please. " * 4_333}),
    _converse("257 messages", lambda: {
        "prompt": "a", "messages": [{"role": "user", "content": "a"}] * 256}),
    Attack("a reported value of 5 MB", "~/execution_reports", "timely_llm/msg/ExecutionReport",
           lambda: {"agent": "attacker", "request_id": "none", "value": "x" * 5_000_000}),
    Attack("5,000 reports at once", "~/execution_reports", "timely_llm/msg/ExecutionReport",
           lambda: {"agent": "attacker", "request_id": "none", "state": 1}, times=5_000),
    Attack("100 refusals of 0.5 MB", "~/plan_requests", "timely_llm/msg/PlanRequest",
           lambda: {"agent": "x" * 500_000, "request_id": "attack"}, times=100,
           answer="~/results", answer_kind="timely_llm/msg/PlanResult"),
    Attack("a request's id of 5 MB to cancel", "~/cancel_request", "timely_llm/srv/CancelRequest",
           lambda: {"request_id": "x" * 5_000_000}),
    _claim("a claim to be 1e9 s old", "1e9"),
    _claim("10,000 claims at once", "inf", times=10_000),
    _converse("a stream of 2 s a token", lambda: {"prompt": "Hi.", "tpot": 2.0, "max_tokens": 4}),
    Attack("a parameter of no type", "~/set_parameters", "rcl_interfaces/srv/SetParameters",
           lambda: {"parameters": [{"name": "policy", "value": {"type": 42}}]}),
)  # fmt: skip
"""The attacks of `timely-llm benchmark attack`, in order."""


LIMIT_S = 1800.0
AFTERMATH_S = 0.3
"""Seconds after an answer in which a request still counts as beside the attack."""
MARGIN_S = 0.05
"""Seconds before an attack in which a request does not count as quiet."""


def rows(
    attacks: Sequence[str] = (),
    engine: str = "transformers",
    executor: str = "single",
    rounds: int = 3,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Return a row for each attack.

    A robot requests one urgent plan after the other from a real server, while another process
    attacks the server. All times are of the machine's monotonic clock.

    Args:
        attacks: names of attacks; all of `ATTACKS` if empty.
        engine: the server's engine.
        executor: the server's executor, single or events.
        rounds: times that each attack is sent.
        progress: called with the finished and the total number of attacks.

    Returns:
        Rows of `attack, executor, answer_s, plans, usual_ms, longest_usual_ms, longest_beside_ms,
        more_ms, answer`: seconds until the answer; urgent plans beside the attack; median response
        in the quiet between attacks; longest of as many quiet responses as a round has beside it;
        longest response beside the attack, median of the rounds; the difference of the last two;
        the server's sentence.

    Raises:
        ProcessError: a process could not be started or died: an attack has ended the server.
        Interrupted: the user interrupted the benchmark.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run(folder, attacks, engine, executor, rounds, progress)
        robot = LogReader(folder / "robot.jsonl").read()
        attacker = LogReader(folder / "attacker.jsonl").read()
    return table(robot, attacker, executor)


def table(robot: list[RunEvent], attacker: list[RunEvent], executor: str) -> list[dict[str, Any]]:
    """Return the rows from the event logs of robot and attacker."""
    served = [(e.asked_s, e.t - e.asked_s) for e in robot if isinstance(e, ServedEvent)]
    rounds = _rounds(attacker)
    quiet = [
        took
        for asked, took in served
        if all(asked >= r.last_s or asked + took + MARGIN_S <= r.first_s for r in rounds)
    ]
    usual_s = _longest(quiet, 1)
    made = []
    for name in dict.fromkeys(r.name for r in rounds):
        same = [r for r in rounds if r.name == name]
        beside = [
            [took for asked, took in served if asked < r.last_s and asked + took > r.first_s]
            for r in same
        ]
        longest = [max(each) for each in beside if each]
        longest_s = float(np.median(longest)) if longest else float("nan")
        alone_s = _longest(quiet, sum(map(len, beside)) / max(len(longest), 1))
        made.append({
            "attack": name,
            "executor": executor,
            "answer_s": round(float(np.median([r.answered_s - r.first_s for r in same])), 3),
            "plans": sum(map(len, beside)),
            "usual_ms": round(1e3 * usual_s, 1),
            "longest_usual_ms": round(1e3 * alone_s, 1),
            "longest_beside_ms": round(1e3 * longest_s, 1),
            "more_ms": round(1e3 * (longest_s - alone_s), 1),
            "answer": same[-1].words,
        })  # fmt: skip
    return made


def _longest(times: list[float], number: float) -> float:
    """Return the median of the longest of `number` samples of `times`."""
    return float(np.quantile(times, 0.5 ** (1.0 / max(number, 1.0)))) if times else float("nan")


class _Round(NamedTuple):
    """One attack: the times at which it was sent and answered, and the answer."""

    name: str
    first_s: float
    answered_s: float
    words: str

    @property
    def last_s(self) -> float:
        """The last time at which a request counts as beside the attack."""
        return self.answered_s + AFTERMATH_S


def _rounds(attacker: list[RunEvent]) -> list[_Round]:
    begun = [e for e in attacker if isinstance(e, AttackEvent)]
    answered = [e for e in attacker if isinstance(e, AttackAnsweredEvent)]
    return [
        _Round(end.name, begin.t, end.t, end.words)
        for begin, end in zip(begun, answered, strict=False)
    ]


def _run(
    folder: Path,
    attacks: Sequence[str],
    engine: str,
    executor: str,
    rounds: int,
    progress: Callable[[int, int], None],
) -> None:
    total = rounds * (len(attacks) or len(ATTACKS))
    environment = local_environment(random_domain())
    log = folder / "attacker.jsonl"
    robot_command = ros_command(ATTACK_PROBE, {"role": "robot", "log": str(folder / "robot.jsonl")})
    attacker_command = ros_command(
        ATTACK_PROBE,
        {"role": "attacker", "log": str(log), "attacks": list(attacks) or [""], "rounds": rounds},
    )
    with Interrupts() as interrupts, Children(interrupts) as children:
        server = start_server(
            children, interrupts, environment, folder, engine=engine, executor=executor
        )
        robot = children.start("robot", robot_command, environment, folder / "robot.log")
        served = LogReader(folder / "robot.jsonl")
        wait(
            robot, lambda: any(isinstance(e, ServedEvent) for e in served.read()), interrupts,
            START_LIMIT_S, "the robot was not served",
        )  # fmt: skip
        children.start("attacker", attacker_command, environment, folder / "attacker.log")
        reader, done = LogReader(log), 0

        def over() -> bool:
            nonlocal done
            events = reader.read()
            done += sum(isinstance(e, AttackAnsweredEvent) for e in events)
            progress(done, total)
            return any(isinstance(e, OverEvent) for e in events)

        wait(server, over, interrupts, LIMIT_S, "the attacks were not over")
