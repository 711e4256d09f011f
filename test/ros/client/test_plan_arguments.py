"""A client takes an argument, or refuses it in one sentence."""

from __future__ import annotations

import inspect
import itertools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.ros_domains import reserved_domain
from timely_llm import srv
from timely_llm.core.errors import RequestError, TimelyError
from timely_llm.core.request import ChatMessage, ErrorCode, PlanResult
from timely_llm.core.segment import Segment
from timely_llm.core.slo import Slo
from timely_llm.core.time_utility import NORMAL, TimeUtility
from timely_llm.resources import resource
from timely_llm.robots.client.plan_task import PlanTask
from timely_llm.ros.client.plan import PlanClient, PlanClientError, PlanTimeout, refusal
from timely_llm.ros.client.talk import Answer, TalkClient

JUNK: tuple[Any, ...] = (
    None, True, 0, 3, -1, 10**30, 0.5, -0.5, math.nan, math.inf, -math.inf, 1e308, 10**400, "",
    "x", "\0", "\ud800", "a b", "x" * 100_000, b"x", [], [None], {}, (), object(), Path("x"),
    repr, Slo, np.float32(2.0), np.int64(3), 1j,
)  # fmt: skip


@pytest.fixture(scope="module")
def domain() -> Iterator[int]:
    with reserved_domain() as domain:
        yield domain


@pytest.fixture(scope="module")
def client(domain: int) -> Iterator[PlanClient]:
    with PlanClient("robot", domain=domain, find_s=0.02) as made:
        yield made


@pytest.fixture(scope="module")
def talker(domain: int) -> Iterator[TalkClient]:
    with TalkClient("ann", domain=domain, find_s=0.02) as made:
        yield made


class Nowhere:
    """Takes the calls of a task."""

    def cancel(self, request_id: str) -> None: ...

    def report(self, report: object) -> None: ...

    def skill_set(self, name: str) -> Any:
        raise PlanClientError("there is no server")


def each_junk(call: Callable[..., object], **valid: object) -> None:
    """Call with each argument wrong in each way; the error must be one sentence."""
    named = set(inspect.signature(call).parameters) - {"self"}
    assert named == set(valid), "every argument is tried"
    for name, wrong in itertools.product(valid, JUNK):
        began_s = time.monotonic()
        try:
            call(**(valid | {name: wrong}))
        except TimelyError as error:
            sentence = str(error)
            assert sentence, name
            assert len(sentence) < 700, f"{name}: {sentence[:200]}"
            assert "\n" not in sentence, name
        except Exception as error:
            raise AssertionError(f"{name}={wrong!r}") from error
        assert time.monotonic() - began_s < 10.0, name


def test_a_plan_is_asked_for(client: PlanClient) -> None:
    each_junk(
        client.submit, task="x", time_utility=NORMAL, max_tokens=0, temperature=0.0, seed=0,
        request_id="", closed_loop=None, plan="", mode="direct",
    )  # fmt: skip


def test_a_plan_is_executed(client: PlanClient) -> None:
    file = resource("config/skill_sets/drone.yaml")
    each_junk(
        client.execute, task="x", skills={}, time_utility=NORMAL, on_progress=None, absent=(),
        otherwise=repr, skill_set=file, timeout_s=1.0, max_tokens=0, temperature=0.0, seed=0,
        plan="", log=None, mode="direct",
        request_id="",
    )  # fmt: skip


def test_the_server_is_asked_for_more(client: PlanClient) -> None:
    each_junk(client.skill_set, name="drone")
    each_junk(client.result_of, request_id="x", timeout_s=0.02)
    each_junk(client.cancel, request_id="x")
    each_junk(client.resume, request_id="x")
    each_junk(client.report, report=None)


def test_a_server_is_waited_for(client: PlanClient) -> None:
    for wrong in JUNK:
        if not isinstance(wrong, (int, float)) or wrong < 1:  # the others do wait
            with pytest.raises(PlanClientError):
                client.wait_for_server(wrong)


def test_an_answer_is_asked_for(talker: TalkClient) -> None:
    each_junk(
        talker.converse, said="x", slo_class="", slo=None, weight=0.0, conversation="", turn=0,
        words_per_s=0.0, max_tokens=0, temperature=0.0, seed=0, request_id="",
        mode="direct",
    )  # fmt: skip
    each_junk(talker.result_of, request_id="x", timeout_s=0.02)
    with pytest.raises(PlanTimeout):
        talker.converse([ChatMessage("user", "x")])


@pytest.mark.parametrize(
    "name", ["agent", "server", "namespace", "alive_period_s", "find_s", "use_sim_time"]
)
@pytest.mark.parametrize("wrong", [None, 5, b"x", math.nan, -1, "\0", [], 10**400])
def test_a_client_is_made(name: str, wrong: Any, domain: int) -> None:
    valid: dict[str, Any] = {"agent": "robot", "domain": domain}
    if name in ("alive_period_s", "find_s") and wrong == 5:
        wrong = "5"
    with pytest.raises(PlanClientError):
        PlanClient(**(valid | {name: wrong}))


@pytest.mark.parametrize("wrong", [9999, -1, 233, "7", 1.0, True, math.nan])
def test_a_domain_that_ros_does_not_have_is_refused(wrong: Any) -> None:
    for kind in (PlanClient, TalkClient):
        with pytest.raises(PlanClientError, match=r"domain must be .*0 to 232, not"):
            kind("robot", domain=wrong)


def made_task() -> PlanTask:
    task = PlanTask("r", "robot", Nowhere(), "drone")
    task.offer(Segment("r", "robot", 0, "g('x');", (), 1.0, True))
    task.finish(PlanResult("r", "robot", ErrorCode.NONE, ""))
    return task


def test_a_plan_is_reported() -> None:
    task = made_task()
    (segment,) = task.segments(1.0)
    each_junk(task.started, segment=segment)
    each_junk(task.finished, segment=segment, duration_s=None, value="")
    each_junk(task.failed, segment=segment, reason="", duration_s=None)
    each_junk(task.segments, timeout_s=1.0)
    each_junk(task.result, timeout_s=1.0)
    each_junk(task.cancel, timeout_s=1.0)
    each_junk(Answer("a", "ann", Nowhere()).chunks, timeout_s=1.0)


def test_a_plan_that_came_is_executed() -> None:
    def execute(**arguments: Any) -> None:
        made_task().execute(**arguments)

    execute.__signature__ = inspect.signature(made_task().execute)  # type: ignore[attr-defined]
    each_junk(
        execute, skills={}, on_progress=None, absent=(), otherwise=repr,
        skill_set=resource("config/skill_sets/drone.yaml"), timeout_s=1.0, log=None,
    )  # fmt: skip


@pytest.mark.parametrize("wrong", JUNK, ids=lambda value: repr(value)[:20])
def test_nouns_of_requests_are_checked(wrong: Any) -> None:
    for kind, names in (
        (TimeUtility, ("beta", "alpha", "ert_s")),
        (Slo, ("ttft_s", "tpot_s", "deadline_s")),
    ):
        for name in names:
            try:
                kind(**{name: wrong})
            except RequestError as error:
                assert name.removesuffix("_s") in str(error)
    for role in (wrong, "user"):
        try:
            ChatMessage(role, wrong)
        except RequestError as error:
            assert "message" in str(error)


def test_none_is_no_task(client: PlanClient) -> None:
    with pytest.raises(RequestError, match=r"^the task must be a text, not None$"):
        client.submit(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [srv.GetSegments.Response, srv.GetSkillSet.Response])
@pytest.mark.parametrize(
    ("number", "code"), [(2, ErrorCode.UNKNOWN_SKILL_SET), (999, ErrorCode.ENGINE_FAILED)]
)
def test_an_answer_of_a_later_release_is_a_refusal_too(
    kind: Any, number: int, code: ErrorCode
) -> None:
    error = refusal(kind(error_code=number, error_msg="there is none"))
    assert (str(error), error.code) == ("there is none", code)
