"""Servers and their dispatcher are killed, and each request ends as it should.

The rules about time are the command's: a test does not depend on the speed of its machine.
"""

from pathlib import Path

import pytest

from timely_llm.benchmarks.kills.findings import TIMED
from timely_llm.benchmarks.kills.lives import Fault
from timely_llm.benchmarks.kills.run import KillsOutcome, run
from timely_llm.benchmarks.kills.schedule import Kills

pytestmark = pytest.mark.faults


def broken(outcome: KillsOutcome) -> list[Fault]:
    """Return the broken rules that are not about time."""
    return [fault for fault in outcome.faults if fault.check not in TIMED]


def test_no_request_is_lost_in_silence_when_servers_are_killed(tmp_path: Path, domain: int) -> None:
    asked = Kills(5, 1, robots=12, people=4, only_kills=True)
    outcome = run(asked, tmp_path, domain=domain)
    assert not broken(outcome)
    numbers = {row["what"]: row["number"] for row in outcome.rows}
    assert (numbers["servers killed"], numbers["dispatcher killed"]) == (5, 1)
    assert numbers["plans served whole"] > 0
    assert numbers["answers served whole"] > 0


def test_plans_outlive_a_server_with_a_journal_that_is_killed_five_times(
    tmp_path: Path, domain: int
) -> None:
    outcome = run(Kills(5, robots=12, people=4, journal=True), tmp_path, domain=domain)
    assert not broken(outcome)
    numbers = {row["what"]: row["number"] for row in outcome.rows}
    assert numbers["servers killed"] == 5
    assert numbers["plans that went on in a later life"] > 0
