"""Servers and their dispatcher are killed, and each request ends as it should."""

from pathlib import Path

import pytest

from timely_llm.benchmarks.kills.run import run
from timely_llm.benchmarks.kills.schedule import Kills

pytestmark = pytest.mark.faults


def test_no_request_is_lost_in_silence_when_servers_are_killed(tmp_path: Path, domain: int) -> None:
    outcome = run(Kills(5, 1, robots=12, people=4), tmp_path, domain=domain)
    assert not outcome.faults
    numbers = {row["what"]: row["number"] for row in outcome.rows}
    assert numbers["plans served whole"] > 0
    assert numbers["answers served whole"] > 0
