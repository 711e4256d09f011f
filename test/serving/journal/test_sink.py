"""A server that ends at any record, and goes on."""

import threading
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from test.serving.scripted import ARM, PROFILE, PublishingLoop, request
from test.serving.server.test_server import Waiting
from timely_llm.core.clock import VirtualClock, WallClock
from timely_llm.core.request import (
    ChatMessage,
    ErrorCode,
    ExecutionReport,
    PlanRequest,
    ReportState,
    Request,
    Result,
    StreamRequest,
    StreamResult,
)
from timely_llm.core.segment import Segment
from timely_llm.core.step import SequenceProgress
from timely_llm.engines.contract import Decoding
from timely_llm.engines.example_script import ASSISTANT
from timely_llm.engines.simulated import SimulatedEngine
from timely_llm.policies.timely import Timely
from timely_llm.resources import resource
from timely_llm.serving.conversations import RetentionLimits
from timely_llm.serving.journal.file import JournalFile
from timely_llm.serving.journal.sink import JournalSink
from timely_llm.serving.limits import AdmissionLimits, RequestLimits
from timely_llm.serving.loop import Loop
from timely_llm.serving.server.server import Server
from timely_llm.skills.skill_set import parse_skill_set

YAML = resource("config/skill_sets/arm.yaml").read_text()
PLANS = {
    "plain": "open();close();open();pick('a');->True;",
    "asks": "open();look();...pick('cup');place('box');->True;",
    "fails": "open();close();pick('a');->True;...open();open();pick('b');->True;",
}
VALUE = "a cup"


class Killed(BaseException):
    """The process ends here."""


class DyingFile(JournalFile):
    """A journal of a process that ends at the n-th record, before or after it was written.

    With those before it that are written at once, the record is then in the file, and a part of the
    next one.
    """

    left = 10**9
    before = False
    writes = 0

    def _append(self, lines: bytes) -> int:
        self.writes += 1
        records = lines.splitlines(keepends=True)
        self.left, there = self.left - len(records), self.left
        if self.left > 0:
            return super()._append(lines)
        if there > 0:
            kept = b"".join(records[: there - self.before])
            super()._append(lines[: len(kept) + 20])
        raise Killed

    @property
    def dead(self) -> bool:
        return self.left <= 0


def say(key: str, prompt: str) -> str:
    """Go on with the plan of a request, wherever it is."""
    asked, _, said = prompt.rpartition(ASSISTANT)
    if not key:
        return ""
    first, _, again = PLANS[key.partition("-")[0]].partition("...")
    if key.startswith("fails"):
        plan = again if "but I failed" in asked else first
        return plan[len(said) :]
    if first.startswith(said):
        return first[len(said) :]
    output = ARM.answer_text(VALUE)
    assert said.startswith(first + output), said
    return again[len(said) - len(first + output) :]


class World:
    """Robots, and what they were sent; it outlives servers."""

    def __init__(self) -> None:
        self.sent: list[Segment] = []
        self.started: set[tuple[str, int, int]] = set()
        self.done: set[tuple[str, int, int]] = set()
        self.results: dict[str, list[Result]] = {}
        self.plans: dict[tuple[str, int], dict[int, str]] = {}
        self.journal: DyingFile | None = None

    @property
    def alone(self) -> bool:
        return self.journal is not None and self.journal.dead

    def segment(self, segment: Segment) -> None:
        if self.alone:
            return
        place = segment.request_id, segment.epoch, segment.index
        assert place not in self.started or segment.final, "sent again after its report"
        texts = self.plans.setdefault(place[:2], {})
        assert segment.text.startswith(texts.get(segment.index, "")), "another text"
        texts[segment.index] = segment.text
        self.sent.append(segment)

    def chunk(self, chunk: object) -> None:
        pass

    def stepped(self, result: object) -> None:
        pass

    def accepted(self, request: Request) -> None:
        pass

    def ended(self, result: Result) -> None:
        if not self.alone:
            self.results.setdefault(result.request_id, []).append(result)

    def resume(self) -> None:
        """Report all again, as `PlanClient.resume` with a log of calls does."""
        self.done.clear()

    def reports(self) -> Iterator[ExecutionReport]:
        """Report the execution of what was sent."""
        for segment in list(self.sent):
            place = segment.request_id, segment.epoch, segment.index
            epochs = [s.epoch for s in self.sent if s.request_id == segment.request_id]
            if place in self.done or segment.epoch < max(epochs):
                continue
            names = segment.request_id, segment.agent
            yield ExecutionReport(*names, ReportState.STARTED, segment.index, epoch=segment.epoch)
            self.done.add(place)
            if segment.request_id.startswith("fails") and place[1:] == (0, 1):
                yield ExecutionReport(*names, ReportState.FAILED, 1, 1.0, "wind", segment.epoch)
                return
            value = VALUE if segment.blocking else ""
            yield ExecutionReport(
                *names, ReportState.FINISHED, segment.index, 1.0, value, segment.epoch
            )


class Life:
    """One life of a server on the virtual clock."""

    def __init__(
        self, journal: DyingFile, world: World, left: int, before: bool, **options: Any
    ) -> None:
        self.world, self.clock, self.journal = world, VirtualClock(), journal
        self.made = JournalSink(self.journal, world)
        engine = SimulatedEngine(PROFILE, say, self.clock)
        self.loop = PublishingLoop(
            engine, Timely(lead_s=0.2), self.made, self.clock, self.made, **options
        )
        self.loop.register(ARM)
        self.free = self.loop.free_kv_tokens
        self.made.record_loop(self.loop, lambda _: YAML)
        saved = self.journal.saved
        self.loop.saved.update(
            {key: one for key, one in saved.items() if isinstance(one.request, PlanRequest)}
        )
        self.journal.left, self.journal.before = left, before
        for one in saved.values():
            refusal = self.made._refusal(one)
            if refusal:
                self.made.ended(one.request.refused(ErrorCode.ENGINE_FAILED, refusal))
            else:
                self.submit(one.request)

    def submit(self, asked: Request) -> None:
        self.made.accepted(asked)
        self.loop.admit(asked)

    def run(self) -> None:
        for _ in range(3000):
            if not self.loop.generations:
                return
            turn = self.loop.turn()
            for report in self.world.reports():
                self.loop.report(report)
                self.world.started.add((report.request_id, report.epoch, report.index))
            if not turn.stepped:
                self.clock.advance(min(max(turn.wake_s - self.clock.now(), 0.0), 0.5))
        raise AssertionError("requests did not end")


def asked() -> list[PlanRequest]:
    whole = PLANS["asks"].replace("...", "")
    closed: Any = {"skill_set": "arm", "closed_loop": True}
    return [
        request("plain-open", skill_set="arm"),
        request("plain", **closed),
        request("asks", **closed),
        request("fails", **closed),
        request("plain-given", given_plan=whole, **closed),
    ]


def live(path: Path, world: World, left: int = 10**9, before: bool = False) -> Life:
    world.resume()
    world.journal = journal = DyingFile(path, "model")
    try:
        life = Life(journal, world, left, before)
        for one in asked():
            if one.request_id not in journal.saved and one.request_id not in world.results:
                life.submit(one)
        life.run()
    finally:
        journal.close()
    return life


def test_all_segments_of_a_turn_are_in_the_file_before_the_first_is_published(
    tmp_path: Path,
) -> None:
    path, world = tmp_path / "journal", World()
    journal = DyingFile(path, "model")
    made = JournalSink(journal, world)
    segments = [Segment(f"r{n}", f"agent-r{n}", 0, f"open{n}();") for n in range(3)]
    for segment in segments:
        made.accepted(request(segment.request_id))
    writes = journal.writes
    made.coming(segments)
    assert journal.writes == writes + 1
    assert all(segment.text in path.read_text() for segment in segments)
    assert not world.sent
    for segment in segments:
        made.segment(segment)
    made.written()
    assert (journal.writes, world.sent) == (writes + 1, segments), "each is recorded once"
    late = Segment("r0", "agent-r0", 1, "close();")
    made.segment(late)
    assert late.text in path.read_text(), "also one that nothing announced"
    made.close()


def test_a_server_that_ends_at_any_record_goes_on_with_the_same_plans(tmp_path: Path) -> None:
    calm = World()
    first = live(tmp_path / "calm", calm)
    written = 10**9 - first.journal.left
    assert written > 40
    assert first.journal.writes < written, "some are written together"
    for record in range(1, written + 1):
        path, world = tmp_path / f"{record}", World()
        with pytest.raises(Killed):
            live(path, world, left=record, before=record % 4 == 0)
        life = live(path, world)
        assert world.plans == calm.plans, record
        assert world.results.keys() == calm.results.keys()
        for key, results in world.results.items():
            assert [r.error_code for r in results] in ([0], [0, 0]), key
        assert life.loop.free_kv_tokens == life.free
        path.unlink()


def test_a_second_end_of_a_server_that_goes_on_loses_nothing(tmp_path: Path) -> None:
    calm = World()
    live(tmp_path / "calm", calm)
    for record in range(5, 60, 9):
        path, world = tmp_path / f"{record}", World()
        for left in (record, 4, 7, 3):
            with pytest.raises(Killed):
                live(path, world, left=left)
        live(path, world)
        assert world.plans == calm.plans, record


def killed_at(path: Path, record: int, *requests: Request) -> World:
    """Serve requests with a server that ends right after a record."""
    world = World()
    world.journal = journal = DyingFile(path, "model")
    with pytest.raises(Killed):
        life = Life(journal, world, record, False)
        for one in requests:
            life.submit(one)
        life.run()
    journal.close()
    return world


def go_on(path: Path, world: World, **options: Any) -> Life:
    world.journal = journal = DyingFile(path, "model")
    life = Life(journal, world, 10**9, False, **options)
    life.run()
    journal.close()
    return life


def question(request_id: str) -> StreamRequest:
    return StreamRequest(request_id, "ann", (ChatMessage("user", "What?"),))


def test_an_answer_that_had_begun_ends_and_one_that_had_not_comes(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    world = killed_at(path, 2, question("plain-talk"))
    go_on(path, world)
    (result,) = world.results["plain-talk"]
    assert result.error_code is ErrorCode.ENGINE_FAILED
    assert result.error_msg == "the server was started again in the middle of the answer: ask again"
    path.unlink()
    world = killed_at(path, 1, question("plain-talk"))
    go_on(path, world)
    (result,) = world.results["plain-talk"]
    assert result.error_code is ErrorCode.NONE


def turn(number: int, words: str = "What?") -> StreamRequest:
    """Ask in the conversation of a person; the request's name begins like its answer's."""
    said = (ChatMessage("user", words),)
    return StreamRequest(f"plain-{number}", "ann", said, conversation="c", turn=number)


def talked(path: Path, world: World, *turns: StreamRequest) -> Life:
    """Serve turns of a conversation, one after the other, in one life of a server."""
    world.journal = journal = DyingFile(path, "model")
    life = Life(journal, world, 10**9, False)
    for one in turns:
        life.submit(one)
        life.run()
    journal.close()
    return life


def test_a_conversation_goes_on_at_the_next_server(tmp_path: Path) -> None:
    path, world = tmp_path / "journal", World()
    talked(path, world, turn(0, "one"), turn(1, "two"))
    life = talked(path, world, turn(2, "three"))
    assert [len(world.results[f"plain-{n}"]) for n in range(3)] == [1, 1, 1]
    third, second = world.results["plain-2"][0], world.results["plain-1"][0]
    assert isinstance(third, StreamResult)
    assert isinstance(second, StreamResult)
    assert (third.error_code, third.kept_tokens) == (ErrorCode.NONE, 0)
    assert third.prompt_tokens > second.prompt_tokens, "with all messages before"
    conversation = life.loop.conversations.saved("plain-2")
    assert conversation is not None
    said = [message.content for message in conversation.messages]
    assert said == ["one", PLANS["plain"], "two", PLANS["plain"], "three", PLANS["plain"]]
    assert life.loop.kept_tokens["ann", "c"] > 0
    assert life.loop.free_kv_tokens == life.free


def test_a_later_turn_that_had_not_begun_comes_and_one_that_had_can_be_asked_again(
    tmp_path: Path,
) -> None:
    path, world = tmp_path / "journal", World()
    talked(path, world, turn(0))
    for record, code in ((1, ErrorCode.NONE), (2, ErrorCode.ENGINE_FAILED)):
        copy = tmp_path / f"{record}"
        copy.write_bytes(path.read_bytes())
        world = killed_at(copy, record, turn(1))
        go_on(copy, world)
        (result,) = world.results["plain-1"]
        assert result.error_code is code
    talked(copy, world, replace(turn(1), request_id="plain-again"))
    assert world.results["plain-again"][0].error_code is ErrorCode.NONE


def test_a_conversation_that_its_server_forgot_is_not_in_the_journal(tmp_path: Path) -> None:
    path, world = tmp_path / "journal", World()
    retention = RetentionLimits(max_conversations=2)
    for number, agent in enumerate(("ann", "bob", "cem", "dan")):
        world.journal = journal = DyingFile(path, "model")
        life = Life(journal, world, 10**9, False, retention=retention)
        life.submit(replace(turn(0), request_id=f"plain-{number}", agent=agent))
        life.run()
        journal.close()
    journal = DyingFile(path, "model")
    assert list(journal.conversations) == [("cem", "c"), ("dan", "c")]
    journal.close()


def test_a_conversation_that_begins_anew_is_the_new_one(tmp_path: Path) -> None:
    path, world = tmp_path / "journal", World()
    talked(path, world, turn(0, "one"), turn(1, "two"))
    life = talked(path, world, replace(turn(0, "anew"), request_id="plain-anew"))
    talked(path, world, replace(turn(1, "more"), request_id="plain-more"))
    (result,) = world.results["plain-more"]
    assert result.error_code is ErrorCode.NONE
    journal = DyingFile(path, "model")
    (conversation,) = journal.conversations.values()
    assert [m.content for m in conversation.messages][::2] == ["anew", "more"]
    assert b'"one"' not in path.read_bytes()
    journal.close()
    assert life.loop.free_kv_tokens == life.free


def test_a_grammar_has_read_what_its_plan_had_and_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decodings: list[Decoding] = []
    add = SimulatedEngine.add

    def watch(engine: SimulatedEngine, *given: Any) -> SequenceProgress:
        decodings.append(given[3])
        return add(engine, *given)

    monkeypatch.setattr(SimulatedEngine, "add", watch)
    read = set()
    for record in range(3, 12):
        path = tmp_path / f"{record}"
        world = killed_at(path, record, request("asks", skill_set="arm", closed_loop=True))
        decodings.clear()
        world.resume()
        life = go_on(path, world, limits=AdmissionLimits(constrained=True))
        (result,) = world.results["asks"]
        assert result.error_code is ErrorCode.NONE
        stream = life.loop._engine.tokenizer.stream()
        read.add("".join(map(stream.push, decodings[-1].read)))
    first, _, again = PLANS["asks"].partition("...")
    assert "open();" in read and first in read
    assert all((first + again).startswith(text) for text in read), read
    assert any(first < text for text in read), "also what follows the value"


def test_a_plan_that_is_another_one_now_ends(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal"
    world = killed_at(path, 3, request("plain", skill_set="arm"))
    lines = path.read_bytes().splitlines(keepends=True)
    text = lines[-1].replace(b"open();", b"shut();")[9:-1]
    path.write_bytes(b"".join(lines[:-1]) + b"%08x %s\n" % (zlib.crc32(text), text))
    go_on(path, world)
    (result,) = world.results["plain"]
    assert result.error_code is ErrorCode.ENGINE_FAILED
    assert "its plan is not the one from before the restart any more" in result.error_msg


def test_a_full_server_goes_on_with_its_requests_and_its_skill_sets(tmp_path: Path) -> None:
    path, sink = tmp_path / "journal", Waiting()
    clock = WallClock()

    def serve(skill_set: str = "") -> tuple[Server, JournalFile]:
        journal = JournalFile(path, "model")
        made = JournalSink(journal, sink)

        def make_loop() -> Loop:
            return Loop(SimulatedEngine(PROFILE, say, clock), Timely(lead_s=0.05), clock)

        server = Server(
            make_loop, made, clock, RequestLimits(1), read=parse_skill_set, event_log=made
        )
        server.wait_ready(10)
        if skill_set:
            server.skill_sets.register(skill_set).result(10)
        made.attach(server, clock.now())
        return server, journal

    first, journal = serve(YAML)
    first.submit(request("asks", skill_set="arm", closed_loop=True))
    with sink._changed:
        assert sink._changed.wait_for(lambda: len(sink.segments) == 2, timeout=10)
    journal.close()  # what happens from now on is not written
    second, journal = serve()
    assert second.skill_sets.names == ["arm"]
    assert second.skill_sets.text("arm") == YAML
    assert [s.text for s in second.segments("agent-asks").result(10)] == ["open();", "look();"]
    names = "asks", "agent-asks"
    for index in range(2):
        second.report(ExecutionReport(*names, ReportState.FINISHED, index, 1.0, VALUE))
    for index in (2, 3, 4):
        with sink._changed:
            came = partial(lambda i: sink.segments[-1].index >= i, index)
            assert sink._changed.wait_for(came, timeout=10)
        second.report(ExecutionReport(*names, ReportState.FINISHED, index, 1.0))
    result = sink.wait_for("asks")
    assert result.plan == PLANS["asks"].replace("...", "")
    assert second.call(lambda _: second.result("asks").result()).result(10) is None
    journal.close()
    third, journal = serve()
    assert third.result("asks").result(10) == result
    assert third.result("other").result(10) is None
    journal.close()
    assert third.close()
    assert first.close()
    assert second.close()


def test_reports_that_came_during_a_step_are_written_with_one_call(tmp_path: Path) -> None:
    path, sink, clock = tmp_path / "journal", Waiting(), WallClock()
    journal = DyingFile(path, "model")
    made = JournalSink(journal, sink)

    def make_loop() -> Loop:
        return Loop(SimulatedEngine(PROFILE, say, clock), Timely(lead_s=0.05), clock)

    server = Server(make_loop, made, clock, read=parse_skill_set, event_log=made)
    server.wait_ready(10)
    server.skill_sets.register(YAML).result(10)
    made.attach(server, clock.now())
    server.submit(request("asks", skill_set="arm", closed_loop=True))
    with sink._changed:
        assert sink._changed.wait_for(lambda: len(sink.segments) == 2, timeout=10)
    go_on = threading.Event()
    server.call(lambda _: go_on.wait(10))
    names = "asks", "agent-asks"
    for state, index in (("STARTED", 0), ("FINISHED", 0), ("STARTED", 1)):
        server.report(ExecutionReport(*names, ReportState[state], index))
    writes = journal.writes
    go_on.set()
    server.call(lambda _: None).result(10)  # it comes after all of them
    assert server.call(lambda _: journal.writes).result(10) == writes + 1
    assert path.read_text().count('"kind":"report"') == 3
    server.close()
