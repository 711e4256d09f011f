"""Fronts for tests, and what they ask of their caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from test.dispatch.views import server
from timely_llm.conformance.policies.service import sizes
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    PlanResult,
    ReportState,
    Result,
    StreamRequest,
)
from timely_llm.core.segment import Segment, SkillCall
from timely_llm.core.time_utility import NORMAL
from timely_llm.dispatch.assign.registry import make_dispatcher
from timely_llm.dispatch.contract import Due, ServerView, Waiting
from timely_llm.dispatch.front.actions import Action, Deliver, Finish, Send
from timely_llm.dispatch.front.front import Front
from timely_llm.experiments.sources import shipped_skill_sets

DRONE = next(iter(shipped_skill_sets().values()))
GO = PlanRequest("r", "robot-r", "drone", "Go.", NORMAL)
CLOSED = replace(GO, closed_loop=True)
QUEUE = (Due(0.1, 8.0, 2.0, 0.3, 60),) * 12
BUSY = (Due(0.1, 1e4),)
SCAN = (SkillCall("scan", blocking=True),)


class Words:
    """Words the rest of requests: plans as a skill set does, answers with the text so far."""

    def task(self, request: PlanRequest, plan: str, reason: str, done: str) -> str:
        return DRONE.recovery_text(request.task, plan, reason, done)

    def value(self, request: PlanRequest, value: str) -> str:
        return DRONE.answer_text(value)

    def answer(self, request: StreamRequest, text: str, tokens: int) -> StreamRequest:
        said = (ChatMessage("assistant", text), ChatMessage("user", "Go on."))
        return replace(
            request, messages=request.messages + said, max_tokens=request.max_tokens - tokens
        )


def front(
    *views: ServerView, rule: str = "most-worth", moves: bool = True, hedge: bool = False
) -> Front:
    made = Front(make_dispatcher(rule), Words(), moves, hedge)
    for view in views or (server("a", due=BUSY), server("b", due=BUSY)):
        made.heard(view, 0.0, 0.0)
    return made


def sent(actions: Sequence[Action]) -> list[tuple[str, str]]:
    return [(one.waiting.key, one.server) for one in actions if isinstance(one, Send)]


def shown(actions: Sequence[Action]) -> list[tuple[int, int]]:
    """Return the epochs and indices of the delivered segments."""
    what = [one.what for one in actions if isinstance(one, Deliver)]
    return [(one.epoch, one.index) for one in what if isinstance(one, Segment)]


def end(actions: Sequence[Action]) -> Result:
    """Return the result of the only end."""
    (result,) = [one.result for one in actions if isinstance(one, Finish)]
    return result


def segment(index: int = 0, epoch: int = 0, **changes: object) -> Segment:
    """Return a segment of a second."""
    made = Segment("r", "robot-r", index, f"up({index});", predicted_s=1.0, epoch=epoch)
    return replace(made, **changes)  # type: ignore[arg-type]


def result(code: ErrorCode = ErrorCode.NONE, name: str = "r") -> PlanResult:
    return PlanResult(name, f"robot-{name}", code, "" if code is ErrorCode.NONE else "no")


def report(state: ReportState, index: int = 0, epoch: int = 0, value: str = "") -> ExecutionReport:
    return ExecutionReport("r", "robot-r", state, index, value=value, epoch=epoch)


def begun(made: Front, request: PlanRequest = GO, segments: int = 2, final: bool = False) -> str:
    """Ask for a plan and deliver some of it; return its server."""
    ((_, name), *_) = sent(made.asked(Waiting(request, 0.0, 760), 0.0))
    for index in range(segments):
        last = final and index == segments - 1
        made.segment(name, segment(index, request.epoch, final=last), 0.1)
    return name


def rest(actions: Sequence[Action]) -> tuple[str, Waiting, PlanRequest]:
    """Return the only action: a server, and the plan request that it gets."""
    (one,) = actions
    assert isinstance(one, Send) and isinstance(one.waiting.request, PlanRequest)
    return one.server, one.waiting, one.waiting.request


def other(name: str) -> str:
    """Return the other one of servers a and b."""
    return "b" if name == "a" else "a"


def kept(made: Front) -> dict[str, int]:
    """Return how many elements a front's containers hold, but for the servers' last views."""
    held = sizes(made, leave_out=[made._dispatcher, ErrorCode])
    views = ("ServerView.", "Due.", "Ledger._servers")
    return {place: count for place, count in held.items() if count and not place.startswith(views)}
