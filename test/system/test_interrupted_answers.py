"""Answers that end before they are complete: memory is free, and each request has a result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from action_msgs.msg import GoalStatus

from test.system.conftest import Start
from test.system.ros_client import serving
from test.system.ros_talker import SLOW, Talker
from timely_llm import srv
from timely_llm.core.request import ErrorCode

VICTIM = """
import time
from timely_llm.ros.client.talk import TalkClient
client = TalkClient("victim", alive_period_s=0.1)
answer = client.converse("Tell me all.", request_id="orphan", conversation="mine")
print(next(answer.chunks()), flush=True)
time.sleep(600)
"""


@pytest.fixture
def talker(start: Start, domain: int, request: pytest.FixtureRequest) -> Iterator[Talker]:
    """A talker to a server with the parameters that the test was given."""
    with serving(start, Talker, domain, **SLOW, **getattr(request, "param", {})) as made:
        yield made


def test_cancel_ends_an_answer_in_the_middle(talker: Talker) -> None:
    handle = talker.ask("stopped")
    talker.until(lambda: bool(talker.tokens_of("stopped")))
    listed = talker.call(srv.ListRequests, "list_requests")
    (status,) = listed.requests
    assert (status.request_id, status.kind, status.delivered > 0) == (
        "stopped",
        status.ANSWER,
        True,
    )
    assert talker.stats[-1].streams == 1
    talker.result(handle.cancel_goal_async())
    answer = talker.result(handle.get_result_async())
    assert answer.status == GoalStatus.STATUS_CANCELED
    assert answer.result.error_code == ErrorCode.CANCELED
    assert answer.result.completion < 0 < answer.result.ttft
    assert not answer.result.slo_met
    talker.until(lambda: len(talker.tokens_of("stopped")) == answer.result.generated_tokens)
    told = "".join(token.text for token in talker.tokens_of("stopped"))
    assert answer.result.text == told
    assert not any(token.final for token in talker.tokens_of("stopped"))
    assert talker.listed() == {}


def test_the_service_cancels_answers_too(talker: Talker) -> None:
    result = talker.ask("called off").get_result_async()
    assert talker.call(srv.CancelRequest, "cancel_request", request_id="called off").canceled
    assert talker.result(result).result.error_code == ErrorCode.CANCELED


@pytest.mark.counted
@pytest.mark.parametrize("talker", [{"client_timeout_s": 1.0}], indirect=True)
def test_the_answer_of_a_client_that_was_killed_is_freed(
    talker: Talker, start: Start, tmp_path: Path
) -> None:
    talker.until(lambda: bool(talker.stats))
    free = talker.stats[-1].free_kv_tokens
    script = tmp_path / "victim.py"
    script.write_text(VICTIM)
    victim = start(str(script))
    talker.until(lambda: bool(victim.output) or victim.popen.poll() is not None)
    victim.popen.kill()
    assert talker.ended("orphan").error_code == ErrorCode.CLIENT_SILENT
    talker.until(lambda: talker.stats[-1].free_kv_tokens == free)
    assert talker.stats[-1].kept_conversations == 0
