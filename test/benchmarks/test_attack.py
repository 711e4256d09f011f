"""What a benchmark of attacks says about a run, and that its attacks are what they are called."""

from __future__ import annotations

import numpy as np
import pytest

from timely_llm.benchmarks.attack import ATTACKS, laughs, long_prompt, merges, table
from timely_llm.core.errors import SkillSetError
from timely_llm.core.events.probe_events import AttackAnsweredEvent, AttackEvent, ServedEvent
from timely_llm.core.events.run_event import RunEvent
from timely_llm.skills.skill_set import MAX_PROMPT_CHARACTERS, parse_skill_set


def served(asked_s: float, took_s: float) -> RunEvent:
    return ServedEvent(asked_s + took_s, "r", asked_s)


def test_a_plan_beside_an_attack_is_compared_with_those_in_the_quiet() -> None:
    robot = [served(0.0, 0.1), served(1.0, 0.2), served(2.0, 0.1), served(5.0, 0.1)]
    robot += [served(9.9, 0.4), served(10.4, 0.2), served(12.0, 0.1), served(20.0, 0.6)]
    attacker: list[RunEvent] = [
        AttackEvent(10.0, "a"), AttackAnsweredEvent(10.5, "a", "no"),
        AttackEvent(20.1, "a"), AttackAnsweredEvent(20.2, "a", "no"),
    ]  # fmt: skip
    (row,) = table(robot, attacker, "single")
    assert row["plans"] == 3
    assert row["usual_ms"] == pytest.approx(100)
    assert row["longest_beside_ms"] == pytest.approx(500)  # the median of 400 and 600
    quiet = [0.1, 0.1, 0.1, 0.1, 0.2]
    assert row["longest_usual_ms"] == pytest.approx(1e3 * np.quantile(quiet, 0.5 ** (1 / 1.5)))
    assert row["more_ms"] == pytest.approx(row["longest_beside_ms"] - row["longest_usual_ms"])
    assert (row["answer_s"], row["answer"]) == (pytest.approx(0.3), "no")


def test_attacks_have_names_of_their_own_and_can_be_made() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names)
    for attack in ATTACKS:
        assert attack.fields()


def test_the_longest_prompt_is_one_that_is_taken() -> None:
    made = parse_skill_set(long_prompt(MAX_PROMPT_CHARACTERS))
    assert MAX_PROMPT_CHARACTERS - 100 < len(made.prompt_text()) <= MAX_PROMPT_CHARACTERS
    for text in (merges(), laughs()):
        assert len(text) < 1300
        with pytest.raises(SkillSetError):
            parse_skill_set(text)
