"""A server under attack: what is answered, and what it costs an urgent plan beside it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from timely_llm.benchmarks.attacks import ATTACKS
from timely_llm.processes.children import Children, Interrupts, wait
from timely_llm.processes.log_reader import Event, LogReader
from timely_llm.processes.nodes import (
    ATTACK_PROBE,
    SERVER,
    local_environment,
    random_domain,
    ros_command,
)

START_LIMIT_S = 120.0
LIMIT_S = 1800.0
AFTERMATH_S = 0.3
"""What is asked so long after an answer still counts as beside the attack, seconds."""
MARGIN_S = 0.05
"""What is asked so long before an attack does not count as quiet, seconds."""


def rows(
    attacks: Sequence[str] = (),
    engine: str = "transformers",
    executor: str = "single",
    rounds: int = 3,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Return a row for each attack.

    A robot asks a real server for one urgent plan after the other, and another process attacks it
    meanwhile. All clocks are the machine's monotonic clock.

    Args:
        attacks: their names; none: all of `ATTACKS`.
        engine: the server's.
        executor: the server's, single or events.
        rounds: how often each attack is sent.
        progress: called with attacks done and attacks in all.

    Returns:
        Rows of `attack, executor, answer_s, plans, usual_ms, longest_usual_ms, longest_beside_ms,
        more_ms, answer`: seconds until the answer; urgent plans beside the attack; the median
        response in the quiet between attacks, and the longest of as many as are beside one round;
        the longest beside it, the median of the rounds; the difference of both; the sentence.

    Raises:
        ProcessError: a process could not be started or died: an attack has ended the server.
        Interrupted: the user asked to end.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _run(folder, attacks, engine, executor, rounds, progress)
        robot = LogReader(folder / "robot.jsonl").read()
        attacker = LogReader(folder / "attacker.jsonl").read()
    return table(robot, attacker, executor)


def table(robot: list[Event], attacker: list[Event], executor: str) -> list[dict[str, Any]]:
    """Return the rows of what robot and attacker wrote."""
    served = [(e["asked_s"], e["t"] - e["asked_s"]) for e in robot if e["event"] == "served"]
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
    """Return the longest of so many of these times, as it is in half of all cases."""
    return float(np.quantile(times, 0.5 ** (1.0 / max(number, 1.0)))) if times else float("nan")


class _Round(NamedTuple):
    """An attack that was sent once: when, until when it is looked at, and what was answered."""

    name: str
    first_s: float
    answered_s: float
    words: str

    @property
    def last_s(self) -> float:
        """Until when what is asked counts as beside it."""
        return self.answered_s + AFTERMATH_S


def _rounds(attacker: list[Event]) -> list[_Round]:
    begun = [e for e in attacker if e["event"] == "attack"]
    answered = [e for e in attacker if e["event"] == "answered"]
    return [
        _Round(end["name"], begin["t"], end["t"], end["words"])
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
    journal, log = folder / "server.jsonl", folder / "attacker.jsonl"
    server_command = ros_command(
        SERVER, {"engine": engine, "executor": executor, "journal": str(journal)}
    )
    robot_command = ros_command(ATTACK_PROBE, {"role": "robot", "log": str(folder / "robot.jsonl")})
    attacker_command = ros_command(
        ATTACK_PROBE,
        {"role": "attacker", "log": str(log), "attacks": list(attacks) or [""], "rounds": rounds},
    )
    with Interrupts() as interrupts, Children(interrupts) as children:
        server = children.start("plan server", server_command, environment, folder / "server.log")
        ready = LogReader(journal)
        wait(
            server, lambda: any(e["event"] == "ready" for e in ready.read()), interrupts,
            START_LIMIT_S, "the plan server was not ready",
        )  # fmt: skip
        robot = children.start("robot", robot_command, environment, folder / "robot.log")
        served = LogReader(folder / "robot.jsonl")
        wait(
            robot, lambda: any(e["event"] == "served" for e in served.read()), interrupts,
            START_LIMIT_S, "the robot was not served",
        )  # fmt: skip
        children.start("attacker", attacker_command, environment, folder / "attacker.log")
        reader, done = LogReader(log), 0

        def over() -> bool:
            nonlocal done
            events = reader.read()
            done += sum(e["event"] == "answered" for e in events)
            progress(done, total)
            return any(e["event"] == "over" for e in events)

        wait(server, over, interrupts, LIMIT_S, "the attacks were not over")
