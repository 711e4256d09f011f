"""Requests at several servers: gathered, assigned, moved, and sent on when a server is lost."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from test.dispatch.front.fronts import (
    BUSY,
    CLOSED,
    GO,
    QUEUE,
    SCAN,
    Words,
    begun,
    end,
    front,
    kept,
    other,
    report,
    rest,
    result,
    segment,
    sent,
    shown,
)
from test.dispatch.views import plan, question, server
from timely_llm.core.request import (
    MAX_TASK_CHARACTERS,
    ChatMessage,
    ErrorCode,
    Rejected,
    ReportState,
    StreamChunk,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.time_utility import URGENT
from timely_llm.dispatch.assign.registry import make_dispatcher
from timely_llm.dispatch.contract import GATHER_S, LONGEST_BURST_S
from timely_llm.dispatch.front.actions import Cancel, Deliver, Finish, Inquire, Send, Tell, Withdraw
from timely_llm.dispatch.front.delivered.plan import ANSWER_S
from timely_llm.dispatch.front.delivered.recovery import LOST
from timely_llm.dispatch.front.front import Front
from timely_llm.dispatch.link import Found


def test_a_request_goes_to_a_server_at_once_while_servers_work() -> None:
    made = front()
    assert sent(made.asked(plan("r"), 0.0)) in ([("r", "a")], [("r", "b")])
    assert made.wake_s == math.inf and made.waiting == []


def test_a_burst_is_assigned_together() -> None:
    made = front(server("a"), server("b"))
    assert made.asked(plan("r0", asked_s=1.0), 1.0) == []
    assert made.asked(plan("r1", asked_s=1.001), 1.001) == []
    assert made.wake_s == 1.001 + GATHER_S and made.waiting == ["r0", "r1"]
    assert made.tick(1.0 + GATHER_S) == []
    assert sorted(name for _, name in sent(made.tick(made.wake_s))) == ["a", "b"]
    assert made.waiting == [] and made.wake_s == math.inf


def test_a_burst_ends_though_requests_go_on_to_come() -> None:
    made = front(server("a"))
    for number in range(40):
        now = 1.0 + number * 0.001
        made.asked(plan(f"r{number}", asked_s=now), now)
    assert 1.0 + LONGEST_BURST_S <= made.wake_s < 1.001 + LONGEST_BURST_S
    assert len(sent(made.tick(made.wake_s))) == 40


def test_an_id_that_is_served_is_refused() -> None:
    made = front()
    ((_, name),) = sent(made.asked(plan("r"), 0.0))
    with pytest.raises(Rejected, match="is being served already"):
        made.asked(plan("r"), 0.1)
    made.ended(name, result(), 0.1)
    assert len(sent(made.asked(plan("r"), 0.2))) == 1


def test_a_plan_that_has_not_begun_goes_elsewhere_as_it_was_with_its_next_epoch() -> None:
    made, one = front(), plan("r")
    ((_, name),) = sent(made.asked(one, 0.0))
    (again,) = made.lost(name, 5.0)
    anew = replace(one, request=replace(one.plan, epoch=1))
    assert again == Send(anew, "b" if name == "a" else "a")
    assert made.serves(again.server, "r") and not made.serves(name, "r")


def test_a_plan_that_has_begun_goes_on_with_its_next_epoch_as_an_urgent_request() -> None:
    made = front()
    name, waiting, request = rest(made.lost(begun(made), 5.0))
    task = Words().task(GO, "up(0);up(1);", LOST, "up(0);up(1);")
    assert request == replace(GO, task=task, time_utility=URGENT, epoch=1)
    assert waiting.asked_s == 5.0
    assert shown(made.segment(name, segment(0, 1), 5.5)) == [(1, 0)]
    finished = report(ReportState.FINISHED, 0, 1)
    assert made.report(finished, 6.0) == [Tell(finished, name)]


def test_a_plan_goes_on_again_with_the_words_that_were_asked_first() -> None:
    made = front(*(server(name, due=BUSY) for name in "abc"))
    name, _, _ = rest(made.lost(begun(made), 5.0))
    made.segment(name, segment(0, 1), 5.5)
    _, _, request = rest(made.lost(name, 9.0))
    assert request.task == Words().task(GO, "up(0);", LOST, "up(0);up(1);up(0);")
    assert request.epoch == 2


def test_a_robot_in_an_open_loop_gets_a_new_plan_when_it_is_free() -> None:
    made = front()
    name, _, _ = rest(made.lost(begun(made), 1.0))
    assert made.segment(name, segment(0, 1), 1.1) == [] and made.wake_s == 2.1
    assert made.tick(2.0) == []
    assert shown(made.tick(2.1)) == [(1, 0)] and made.wake_s == math.inf


def test_a_robot_in_a_closed_loop_gets_a_new_plan_when_it_reported() -> None:
    made = front()
    name, _, _ = rest(made.lost(begun(made, CLOSED), 1.0))
    assert made.segment(name, segment(0, 1), 50.0) == [] and made.wake_s == math.inf
    early = made.report(report(ReportState.FINISHED, 0), 60.0)
    assert shown(early) == []
    assert shown(made.report(report(ReportState.FINISHED, 1), 61.0)) == [(1, 0)]


def test_a_held_plan_that_its_server_has_ended_needs_no_server() -> None:
    made = front()
    name, _, _ = rest(made.lost(begun(made), 1.0))
    made.segment(name, segment(0, 1, final=True), 1.1)
    assert made.ended(name, result(), 1.2) == []
    assert made.is_executed("r") and made.lost(name, 1.3) == []
    actions = made.tick(made.wake_s)
    assert shown(actions) == [(1, 0)] and end(actions).error_code is ErrorCode.NONE
    assert end(actions).plan == "up(0);"  # type: ignore[attr-defined]


def test_a_failure_while_a_plan_is_held_makes_its_server_plan_again() -> None:
    made = front()
    name, _, _ = rest(made.lost(begun(made, CLOSED), 1.0))
    made.segment(name, segment(0, 1), 1.1)
    (told,) = made.report(report(ReportState.FAILED, 1, value="stuck"), 1.2)
    assert told == Tell(report(ReportState.FAILED, 0, 1, "up(1);: stuck"), name)
    assert made.segment(name, segment(1, 1), 1.3) == [], "it is of the plan before the failure"
    assert shown(made.segment(name, segment(0, 2), 1.4)) == [(2, 0)]


def test_a_failure_without_a_server_is_part_of_what_is_asked() -> None:
    made = front()
    assert made.lost(other(begun(made, CLOSED)), 0.5) == []
    assert made.lost(str(made.server_of("r")), 1.0) == [] and made.waiting == ["r"]
    assert made.report(report(ReportState.FAILED, 0, value="stuck"), 1.1) == []
    _, _, request = rest(made.heard(server("c"), 1.2, 1.2))
    reason = "segment 0 failed: stuck"
    assert request.task == Words().task(CLOSED, "up(0);up(1);", reason, "")


def test_a_plan_that_returned_ends_also_without_a_server() -> None:
    made = front(server("a", due=BUSY))
    assert made.lost(begun(made, CLOSED), 1.0) == []
    assert end(made.report(report(ReportState.RETURNED, 1), 1.1)).error_code is ErrorCode.NONE


def test_what_a_returned_plan_would_have_done_is_not_shown() -> None:
    made = front()
    name, _, _ = rest(made.lost(begun(made, CLOSED), 1.0))
    made.segment(name, segment(0, 1), 1.1)
    told = made.report(report(ReportState.RETURNED, 1), 1.2)
    assert told == [Tell(report(ReportState.RETURNED, 1, 1), name)]
    assert made.segment(name, segment(1, 1), 1.3) == []
    assert end(made.lost(name, 1.4)).error_code is ErrorCode.NONE


def test_a_plan_waits_for_the_value_of_a_blocking_skill_without_a_server() -> None:
    made = front()
    name = begun(made, CLOSED)
    made.segment(name, segment(2, calls=SCAN), 0.2)
    assert made.lost(name, 1.0) == [] and made.is_executed("r") and made.waiting == []
    _, _, request = rest(made.report(report(ReportState.FINISHED, 2, value="7"), 9.0))
    done = "up(0);up(1);up(2);"
    assert request.task == Words().task(CLOSED, done, LOST, done + Words().value(GO, "7"))


def test_a_failure_of_what_no_server_knows_leads_to_a_new_plan() -> None:
    made = front()
    name = begun(made, CLOSED)
    made.segment(name, segment(2, calls=SCAN), 0.2)
    made.lost(name, 1.0)
    old = report(ReportState.FAILED, 0, epoch=7)
    assert made.report(old, 1.1) == [] and made.is_executed("r"), "of another epoch"
    _, _, request = rest(made.report(report(ReportState.FAILED, 2, value="no"), 1.2))
    reason = "segment 2 failed: no"
    assert request.task == Words().task(CLOSED, "up(0);up(1);up(2);", reason, "up(0);up(1);")


def test_a_robot_that_reports_nothing_is_given_up() -> None:
    made = front()
    made.lost(begun(made, CLOSED, final=True), 1.0)
    assert made.wake_s == pytest.approx(2.1 + ANSWER_S) and made.tick(60.0) == []
    made.report(report(ReportState.STARTED, 1), 61.0)
    gone = end(made.tick(61.0 + ANSWER_S))
    assert gone.error_code is ErrorCode.NO_ANSWER and "the end of segment 1" in gone.error_msg


def test_a_last_segment_that_comes_twice_counts_once() -> None:
    made = front()
    name = begun(made, segments=2)
    made.segment(name, segment(1, text="up(1);}"), 0.2)
    _, _, request = rest(made.lost(name, 5.0))
    assert request.task == Words().task(GO, "up(0);up(1);}", LOST, "up(0);up(1);}")


def test_a_whole_plan_is_not_sent_again() -> None:
    made = front()
    gone = end(made.lost(begun(made, final=True), 5.0))
    assert (gone.error_code, gone.segments) == (ErrorCode.NONE, 2)  # type: ignore[attr-defined]
    assert made.server_of("r") is None and made.waiting == []
    assert made.report(report(ReportState.FINISHED, 1), 6.0) == []


def test_a_given_plan_that_has_begun_ends_with_its_server() -> None:
    made = front()
    given = replace(GO, given_plan="up(0);up(1);up(2);")
    gone = end(made.lost(begun(made, given), 5.0))
    assert gone.error_code is ErrorCode.ENGINE_FAILED and gone.error_msg.startswith(LOST)


def test_a_rest_that_no_server_admits_ends_the_request() -> None:
    made = front()
    gone = end(made.lost(begun(made, replace(GO, task="x" * MAX_TASK_CHARACTERS)), 5.0))
    assert "could not be asked for" in gone.error_msg


def test_an_answer_goes_on_from_its_text() -> None:
    made = front()
    ((_, name),) = sent(made.asked(question("p"), 0.0))
    for index, text in enumerate((" so", " far")):
        made.chunk(name, StreamChunk("p", "person", index, text), 0.1)
    (again,) = made.lost(name, 5.0)
    assert isinstance(again, Send) and isinstance(again.waiting.request, StreamRequest)
    asked = again.waiting.request
    assert asked.messages[1:] == (
        ChatMessage("assistant", " so far"),
        ChatMessage("user", "Go on."),
    )
    assert (asked.first_token, asked.max_tokens, again.waiting.answer_tokens) == (2, 254, 98.0)
    assert made.chunk(name, StreamChunk("p", "person", 2, " old"), 5.1) == []
    good = StreamChunk("p", "person", 2, " good", True)
    assert made.chunk(again.server, good, 5.2) == [Deliver(good)]
    gone = end(made.ended(again.server, StreamResult("p", "person", ErrorCode.NONE, ""), 5.3))
    assert gone.text == " so far good"  # type: ignore[attr-defined]


def test_an_adopted_request_is_not_begun_again() -> None:
    made = front()
    made.adopted("a", plan("r"), Found(GO, (segment(0),)), 1.0)
    _, _, request = rest(made.lost("a", 5.0))
    assert request.epoch == 1
    later = replace(question("p").stream, first_token=5)
    made.adopted("b", replace(question("p"), request=later), Found(later, text=" a", tokens=1), 5.0)
    seventh = StreamChunk("p", "person", 6, " b")
    assert made.chunk("b", seventh, 5.1) == [Deliver(seventh)]


def test_a_canceled_request_is_canceled_where_a_newer_run_of_it_is_found() -> None:
    made = front()
    made.adopted("a", plan("r"), Found(GO, (segment(0),)), 1.0)
    assert made.cancel("r", 1.1) == [Cancel("r", "a")]
    newer = Found(replace(GO, epoch=1), (segment(0, 1),))
    actions = made.adopted("b", plan("r"), newer, 1.2)
    assert actions == [Cancel("r", "a"), Deliver(segment(0, 1)), Cancel("r", "b")]
    assert end(made.lost("b", 1.3)).error_code is ErrorCode.CANCELED


def test_a_refused_request_goes_to_each_server_once() -> None:
    made = front()
    ((_, name),) = sent(made.asked(plan("r"), 0.0))
    full = result(ErrorCode.QUEUE_FULL)
    assert sent(made.ended(name, full, 0.1)) == [("r", other(name))]
    assert made.ended(other(name), full, 0.2) == [Finish(full)]
    assert kept(made) == {}


def test_a_server_that_refused_is_asked_again_if_the_others_are_lost() -> None:
    made = front()
    ((_, name),) = sent(made.asked(plan("r"), 0.0))
    made.ended(name, result(ErrorCode.QUEUE_FULL), 0.1)
    assert sent(made.lost(other(name), 0.2)) == [("r", name)]


def test_other_ends_are_final() -> None:
    made = front()
    name = begun(made)
    late = result(ErrorCode.EXPIRED)
    assert made.ended(other(name), late, 1.0) == [], "it does not have it"
    assert made.ended(name, late, 1.0) == [Finish(late)]


def test_a_request_that_a_view_lacks_is_inquired_after_and_sent_elsewhere() -> None:
    made = front()
    ((_, name),) = sent(made.asked(plan("r"), 0.0))
    assert made.heard(server(name, served=()), 0.5, 0.5) == []
    assert made.heard(server(name, served=()), 1.5, 1.5) == [Inquire("r", name)]
    made.heard(server(other(name), due=BUSY, served=()), 1.5, 1.5)
    assert sent(made.forgotten("r", name, 1.6)) == [("r", other(name))]
    late = made.heard(server(name, served=("r",)), 1.7, 1.7)
    assert late == [Cancel("r", name)], "its message came late"


def test_a_server_that_returns_ends_what_it_should_not_have_and_gets_it_after_that() -> None:
    made = front(server("a", due=BUSY))
    made.asked(plan("r"), 0.0)
    assert made.lost("a", 3.0) == [] and made.waiting == ["r"]
    assert made.heard(server("a", served=("r",)), 4.5, 4.5) == [Cancel("r", "a")]
    assert made.segment("a", segment(), 4.6) == [] and made.waiting == ["r"]
    assert made.heard(server("a", served=()), 4.7, 4.7) == [], "its result has not come"
    assert made.ended("a", result(ErrorCode.CANCELED), 4.8) == [] and made.waiting == ["r"]
    assert sent(made.heard(server("a", served=()), 4.9, 4.9)) == [("r", "a")]


def test_a_canceled_request_is_ended_by_its_server() -> None:
    made = front()
    ((_, name),) = sent(made.asked(plan("r"), 0.0))
    assert made.cancel("r", 0.1) == [Cancel("r", name)]
    assert end(made.lost(name, 0.2)).error_code is ErrorCode.CANCELED
    assert made.cancel("r", 0.3) == []


def test_a_server_that_drains_gives_back_what_has_not_begun() -> None:
    made = front()
    ((_, name),) = sent(made.asked(plan("r"), 0.0))
    view = server(name, unstarted=frozenset({"r"}), active=False)
    assert made.heard(view, 0.1, 0.1) == [Withdraw("r", name)]
    made.ended(name, result(ErrorCode.CANCELED), 0.2)
    assert sent(made.tick(0.2)) == [("r", other(name))]


def test_a_request_is_ended_at_its_servers() -> None:
    made = front()
    name = begun(made)
    first, last = made.end("r", ErrorCode.EXPIRED, "too late", 1.0)
    assert first == Cancel("r", name) and end([last]).error_code is ErrorCode.EXPIRED
    made.heard(server(name, served=()), 9.0, 9.0)
    assert kept(made) == {} and made.end("r", ErrorCode.EXPIRED, "", 2.0) == []


def test_without_a_server_a_request_waits_for_one() -> None:
    made = Front(make_dispatcher("round-robin"), Words())
    assert made.asked(plan("r"), 0.0) == [] or made.tick(made.wake_s) == []
    assert made.waiting == ["r"]
    assert made.heard(server("a", skill_sets={"arm": 5}), 1.0, 1.0) == []
    assert sent(made.heard(server("b"), 1.0, 1.0)) == [("r", "b")]
    assert made.waiting == [] and made.server_of("r") == "b"


def moving(now: float = 0.0) -> tuple[Front, str, str]:
    """Return a front with a request that is to move, its server and the other."""
    made = front()
    ((_, old),) = sent(made.asked(plan("r", URGENT), now))
    (one,) = made.heard(server(old, due=QUEUE, unstarted=frozenset({"r"})), 0.1, 0.1)
    assert one == Withdraw("r", old)
    return made, old, "b" if old == "a" else "a"


@pytest.mark.parametrize("meanwhile", ["nothing", "begun", "canceled", "lost", "new lost", "moves"])
def test_what_has_come_since_a_question_counts_more_than_its_answer(meanwhile: str) -> None:
    made = front()
    ((_, old),) = sent(made.asked(plan("r", URGENT), 0.0))
    view = server(old, due=QUEUE, unstarted=frozenset({"r"}))
    assert made.noted(view, 0.1, 0.1) == []
    question = made.to_move(view, 0.1)
    assert question is not None and [one.request_id for one in question.answer] == ["r"]
    match meanwhile:
        case "begun":
            made.segment(old, segment(), 0.1)
        case "canceled":
            made.cancel("r", 0.1)
        case "lost":
            made.lost(old, 0.1)
        case "new lost":
            made.lost(other(old), 0.1)
        case "moves":
            assert made.moved(question) == [Withdraw("r", old)]
    assert made.moved(question) == ([Withdraw("r", old)] if meanwhile == "nothing" else [])


def test_a_request_leaves_a_long_queue_once_it_is_withdrawn() -> None:
    made, old, new = moving()
    assert made.heard(server(old, due=QUEUE, unstarted=frozenset({"r"})), 0.2, 0.2) == []
    assert made.serves(old, "r"), "it may have begun"
    made.withdrawn("r", old, 0.25)
    assert made.wake_s == 0.25 and made.waiting == ["r"] and made.server_of("r") is None
    assert made.tick(0.2) == []
    assert sent(made.tick(0.25)) == [("r", new)]
    made.withdrawn("r", old, 0.3)
    assert made.serves(new, "r"), "the old server has no say"


def test_a_server_that_requests_leave_is_not_filled_again() -> None:
    made = front(rule="least-outstanding")
    view = server("a", due=QUEUE, unstarted=frozenset({"r0"}))
    assert sent(made.asked(plan("r0", URGENT), 0.0)) == [("r0", "a")]
    assert made.heard(view, 0.1, 0.1) == [Withdraw("r0", "a")]
    made.withdrawn("r0", "a", 0.2)
    assert sent(made.tick(0.2)) == [("r0", "b")]
    assert sent(made.asked(plan("r1", URGENT), 0.3)) == [("r1", "b")]
    assert sent(made.asked(plan("r2", URGENT), 0.3)) == [("r2", "a")]


def test_a_request_that_began_stays_and_may_be_withdrawn_later() -> None:
    made, old, _ = moving()
    made.stays("r", old)
    assert made.serves(old, "r")
    again = made.heard(server(old, due=QUEUE, unstarted=frozenset({"r"})), 0.2, 0.2)
    assert again == [Withdraw("r", old)]


def test_a_request_moves_to_another_server_if_the_new_one_was_lost() -> None:
    made, old, new = moving()
    made.withdrawn("r", old, 0.25)
    assert made.lost(new, 0.2) == []
    assert sent(made.tick(0.25)) == [("r", old)]


def test_a_request_that_its_server_gave_back_unasked_is_assigned() -> None:
    made = front()
    ((_, name),) = sent(made.asked(plan("r"), 0.0))
    made.withdrawn("r", name, 0.1)
    assert len(sent(made.tick(0.1))) == 1 and made.waiting == []


def test_a_canceled_request_does_not_move() -> None:
    made, old, _ = moving()
    made.cancel("r", 0.2)
    made.withdrawn("r", old, 0.25)
    assert end(made.tick(0.25)).error_code is ErrorCode.CANCELED and kept(made) == {}


def test_a_request_does_not_move_to_a_server_that_refused_it() -> None:
    made = front()
    ((_, old),) = sent(made.asked(plan("r", URGENT), 0.0))
    made.ended(old, result(ErrorCode.QUEUE_FULL), 0.1)
    view = server(other(old), due=QUEUE, unstarted=frozenset({"r"}))
    assert made.heard(view, 0.2, 0.2) == []


def test_requests_stay_where_moves_are_off() -> None:
    made = front(moves=False)
    ((_, old),) = sent(made.asked(plan("r", URGENT), 0.0))
    assert made.heard(server(old, due=QUEUE, unstarted=frozenset({"r"})), 0.1, 0.1) == []
