"""An attack on a real server is answered while urgent plans are served beside it."""

import pytest

from test.system.conftest import EXECUTORS
from test.system.outcomes import Outcomes
from timely_llm.benchmarks.attack import rows

pytestmark = pytest.mark.faults


def test_each_attack_is_answered_beside_urgent_plans(outcomes: Outcomes) -> None:
    names = ["1 kB of nested merges", "a parameter of no type"]
    made = rows(names, "simulated", EXECUTORS[-1], 1)
    assert [row["attack"] for row in made] == names
    assert made[0]["answer"].startswith("skill set is nested more than 16 levels deep")
    assert made[1]["answer"].endswith("42 is not a valid Parameter.Type")
    assert made[0]["plans"] > 0
    for row in made:
        outcomes.explained(row["attack"], row["answer"])
        for number in range(row["plans"]):
            outcomes.answered(f"plan {number} beside {row['attack']}")
