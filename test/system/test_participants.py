"""Many participants ask at once, more than a server serves: each is answered."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest

from test.system.conftest import ROOT, Start
from test.system.ros_client import PATIENT, Client, serving
from timely_llm import srv

pytestmark = pytest.mark.faults

PROCESSES = 4


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("participants", "seconds"),
    [(12, 2.0), (100, 10.0), pytest.param(100, 60.0, marks=pytest.mark.long)],
)
def test_participants_at_ten_times_what_is_served_are_answered_beside_control_messages(
    start: Start, domain: int, participants: int, seconds: float
) -> None:
    most = max(participants // 10, 2)
    limits = {
        "max_requests": most,
        "skill_sets": f"[{ROOT / 'config/skill_sets/drone.yaml'}]",
    }
    with serving(start, Client, domain, **(PATIENT | limits)) as client:
        client.until(lambda: bool(client.stats))
        free = client.stats[-1].free_kv_tokens
        crowds = [
            start(
                "test/system/crowd.py", f"crowd{n}_", str(participants // PROCESSES), str(seconds)
            )
            for n in range(PROCESSES)
        ]
        client.until(
            lambda: all(
                "all there" in one.output or one.popen.poll() is not None for one in crowds
            ),
            120.0,
        )
        controls, end_s = 0, time.monotonic() + seconds
        while time.monotonic() < end_s:  # each call fails the test if it is not answered
            assert len(client.listed()) <= most
            client.call(srv.CancelRequest, "cancel_request", request_id="unknown")
            controls += 2
        assert [one.wait(150) for one in crowds] == [0] * PROCESSES, crowds[0].output
        counts: Counter[str] = Counter()
        for one in crowds:
            counts.update(json.loads(one.output.splitlines()[-1]))
        print(participants, seconds, "controls", controls, dict(counts))
        refused = sum(n for name, n in counts.items() if name.startswith("refused"))
        ended = sum(n for name, n in counts.items() if name.startswith("ended"))
        assert controls > 0
        assert counts["never answered"] == 0, counts
        assert counts["asked"] == counts["accepted"] + refused, counts
        assert counts["accepted"] == ended, counts
        # A plan of more worth takes the place of one that has not begun.
        assert ended == counts["ended NONE"] + counts["ended QUEUE_FULL"], counts
        assert counts["ended NONE"] > 0, counts
        assert counts["refused QUEUE_FULL"] == refused > 0, counts
        client.until_listed({})
        client.stats.clear()
        client.until(lambda: bool(client.stats) and client.stats[-1].free_kv_tokens == free)
