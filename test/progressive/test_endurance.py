"""A server with help keeps nothing of requests that have ended, however the cloud fails."""

from __future__ import annotations

import gc
import random
import tracemalloc

import pytest

from test.progressive.test_server import Site
from timely_llm.cloud.simulated import CloudFault
from timely_llm.core.request import ChatMessage, RequestMode

pytestmark = pytest.mark.long


def test_thousands_of_requests_leave_nothing() -> None:
    one = Site(CloudFault("cut", tokens=6), timeout_s=0.2, limits={"max_requests_per_agent": 64})
    rng = random.Random(0)
    held: list[int] = []
    tracemalloc.start()
    for round_ in range(40):
        keys = []
        for number in range(50):
            key = f"{round_}-{number}"
            keys.append(key)
            mode = rng.choice(list(RequestMode))
            if rng.random() < 0.5:
                name, turn = ("home", 0) if rng.random() < 0.3 else ("", 0)
                said = (ChatMessage("user", "what is a cat?"),)
                one.converse(key, said=said, mode=mode, conversation=name, turn=turn)
            else:
                one.plan(key, mode=mode, closed_loop=False)
            if rng.random() < 0.2:
                one.face.cancel(key)
            one.face.tick()
        one.until(lambda: all(key in one.clients.results for key in keys), 60.0)  # noqa: B023
        one.until(lambda: not one.edge.serving)
        one.face.tick()
        face = one.face
        assert not (face._helped or face._parents or face._turns or face._alone or face._actions)
        for kept in (one.clients.results, one.clients.chunks, one.clients.segments):
            kept.clear()
        one.clients.accepted_ids.clear()
        one.asked.clear()
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    one.close()
    assert held[-1] < held[9] * 1.1 + 200_000, held
