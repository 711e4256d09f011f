"""What a server must survive: calls and messages that were made to hurt it, as data.

Add an attack to `ATTACKS`: `timely-llm benchmark attack` sends it to a real server and measures an
urgent plan beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from timely_llm.skills.skill_set import MAX_PROMPT_CHARACTERS

Fields = dict[str, Any]


@dataclass(frozen=True)
class Attack:
    """One input.

    Attributes:
        name: in the table.
        to: a service of the server or a topic that it reads; one of its own as `~/NAME`.
        kind: the interface's type, as PACKAGE/srv/NAME or PACKAGE/msg/NAME.
        fields: makes the request's or message's fields; those of messages within are dicts.
        times: how often it is sent at once.
        answer: topic whose message with the same `request_id` is the answer to a message, as
            `~/NAME`; empty: none is expected.
        answer_kind: its type.
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
    """Return 1 kB of YAML whose merges double thirty times."""
    lines = [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}" for i in range(1, 31)]
    return "\n".join(["a0: &a0 {k: v}", *lines])


def laughs() -> str:
    """Return 1 kB of YAML whose aliases stand for 10^12 values."""
    lines = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 13)]
    return "\n".join(["a0: &a0 [ha, ha]", *lines])


def skill_set(name: str = "attack", **values: Any) -> str:
    """Return a small skill set, more of its values as YAML."""
    more = "".join(f"{key}: {value}\n" for key, value in values.items())
    go = "{description: go, duration: {polynomial: [1]}}"
    return f"name: {name}\nprompt: You control a cart.\nskills: {{go: {go}}}\n{more}"


def rules(*patterns: str) -> str:
    """Return a skill set with rules."""
    return skill_set(language="regex", rules="[" + ", ".join(f"'{p}'" for p in patterns) + "]")


def long_prompt(characters: int) -> str:
    """Return a valid skill set with a prompt of about so many characters."""
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
    _converse("20,000 messages", lambda: {"messages": [{"role": "user", "content": "a"}] * 20_000}),
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
"""What `timely-llm benchmark attack` sends, in this order."""
