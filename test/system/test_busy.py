"""A busy server refuses at once, and says when to ask again."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.system.conftest import Start
from test.system.ros_client import serving
from test.system.ros_talker import SLOW, Talker
from timely_llm.core.request import ErrorCode
from timely_llm.ros.client.pending import PlanClientError
from timely_llm.ros.client.talk import TalkClient

WAIT_S = 30.0


def test_a_client_sees_when_to_ask_again(start: Start, domain: int, tmp_path: Path) -> None:
    costly_rows = tmp_path / "costly.yaml"
    costly_rows.write_text("name: costly\nsource: this test\nbase_s: 0.1\nrow_s: 0.1\n")
    most = {"pace": f"measured:{costly_rows}", "slo_classes": "['text:rate=4']"}
    with (
        serving(start, Talker, domain, **SLOW | most) as server,
        TalkClient("ann", domain=domain, find_s=WAIT_S) as client,
    ):
        first = client.converse("Hi.", conversation="kept")
        next(first.chunks(WAIT_S))
        second = client.converse("Hi.")
        with pytest.raises(PlanClientError, match=r"busy with 1 request.*try again in") as refused:
            list(second.chunks(WAIT_S))
        assert refused.value.code is ErrorCode.BUSY
        assert refused.value.retry_after_s >= 1.0
        assert second.result(WAIT_S).retry_after_s == refused.value.retry_after_s
        assert server.ended(second.request_id).retry_after == refused.value.retry_after_s
        with pytest.raises(PlanClientError, match="there was none, or it is forgotten"):
            client.result_of(second.request_id)
        assert first.cancel(WAIT_S)
        assert client.converse("Hi.", max_tokens=1).result(WAIT_S).error_code is ErrorCode.NONE
