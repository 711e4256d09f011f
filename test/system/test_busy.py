"""A busy server refuses at once, and says when to ask again."""

from __future__ import annotations

import pytest

from test.system.conftest import Start
from test.system.ros_client import serving
from test.system.ros_talker import SLOW, Talker
from timely_llm.core.request import ErrorCode
from timely_llm.ros.client.pending import PlanClientError
from timely_llm.ros.client.talk import TalkClient

WAIT_S = 30.0


def test_a_client_sees_when_to_ask_again(start: Start, domain: int) -> None:
    # Steps take 0.2 s: one such answer takes most of the engine, and a prompt the rest.
    most = {"slo_classes": "['text:rate=4,ttft=0.001']"}
    with (
        serving(start, Talker, domain, **SLOW | most) as server,
        TalkClient("ann", domain=domain, find_s=WAIT_S) as client,
    ):
        client.converse("Hi.", max_tokens=40).result(WAIT_S)  # step times are learned
        first = client.converse("Hi.", conversation="kept")
        next(first.chunks(WAIT_S))
        second = client.converse("What do you see? " * 50)
        with pytest.raises(PlanClientError, match=r"busy with 1 request.*try again in") as refused:
            list(second.chunks(WAIT_S))
        assert refused.value.code is ErrorCode.BUSY
        assert refused.value.retry_after_s >= 1.0
        assert second.result(WAIT_S).retry_after_s == refused.value.retry_after_s
        assert server.ended(second.request_id).retry_after == refused.value.retry_after_s
        assert client.result_of(second.request_id).error_code is ErrorCode.BUSY
        assert first.cancel(WAIT_S)
        assert client.converse("Hi.", max_tokens=1).result(WAIT_S).error_code is ErrorCode.NONE
