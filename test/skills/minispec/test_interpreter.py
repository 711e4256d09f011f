"""A robot executes what the plan means, however its segments come."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from test.skills.plans import DRONE, Say, Written, execute, plans
from timely_llm.core.errors import PlanError
from timely_llm.core.segment import SkillCall, Value
from timely_llm.skills.minispec.checker import check_plan
from timely_llm.skills.minispec.interpreter import Do, Ended, Event, Interpreter, NeedMore

Called = tuple[str, tuple[object, ...]]


@dataclass
class Robot:
    """Executes a plan; the n-th call returns the n-th value, over and over."""

    returns: list[Value]
    interpreter: Interpreter = field(default_factory=lambda: Interpreter(DRONE))
    calls: list[SkillCall] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    last: Do | NeedMore | Ended | None = None
    made: set[int] = field(default_factory=set)

    def go_on(self, steps: int = 100_000) -> Do | NeedMore | Ended | None:
        """Make at most `most` calls; return the interpreter's last action."""
        for _ in range(steps):
            self.last = self.interpreter.next()
            self.note_events()
            if not isinstance(self.last, Do):
                break
            self.calls.append(self.last.call)
            self.made.add(self.last.index)
            self.interpreter.resume(self.returns[(len(self.calls) - 1) % len(self.returns)])
        return self.last

    def note_events(self) -> None:
        for event in self.interpreter.events():
            self.events.append(event)
            if event.skipped:
                assert event.kind == "finished"
                assert event.index not in self.made

    @property
    def names(self) -> list[str]:
        return [str(call) for call in self.calls]


def run(*segments: str, returns: Value | list[Value] = True) -> Robot:
    """Return a robot that has executed a plan that came in order."""
    robot = Robot(returns if isinstance(returns, list) else [returns])
    for index, text in enumerate(segments):
        robot.interpreter.add(index, text, final=index == len(segments) - 1)
        robot.go_on()
    return robot


def segments_of(plan: Written) -> list[str]:
    """Return what a plan is delivered as: the last piece with what is left."""
    texts = [text for text, _ in plan.pieces]
    return [*texts[:-1], texts[-1] + plan.tail]


@examples(120)
@given(
    plans(),
    st.lists(st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a"]), min_size=1),
    st.integers(0, 2**32),
)
def test_the_calls_are_those_the_plan_means_however_its_segments_come(
    plan: Written, returns: list[Value], seed: int
) -> None:
    expected: list[Called] = []

    def perceive(call: Say) -> Value:
        expected.append((call.name, call.arguments))
        return returns[(len(expected) - 1) % len(returns)]

    answer = execute(plan.nodes, perceive)

    rng, texts = random.Random(seed), segments_of(plan)
    end = len(texts) - 1
    coming = [(index, text, index == end) for index, text in enumerate(texts)]
    coming += rng.choices(coming, k=rng.randrange(4))
    if plan.tail and rng.random() < 0.7:  # the last one came before it was known to be the last
        coming.append((end, plan.pieces[-1][0], False))
    rng.shuffle(coming)

    robot = Robot(returns)
    for index, text, final in coming:
        robot.interpreter.add(index, text, final)
        robot.go_on(rng.choice([0, 1, 2, 100_000]))
    assert robot.go_on() == Ended(answer)
    assert [(call.name, call.arguments) for call in robot.calls] == expected

    check_events(robot, None if answer is not None else len(texts))
    calling = {index for index, piece in enumerate(check_plan(DRONE, plan.text)) if piece.calls}
    for event in robot.events:
        if event.kind == "finished" and not event.skipped and event.index in calling:
            assert event.index in robot.made


def check_events(robot: Robot, all_of: int | None) -> None:
    """Each segment is started and finished at most once, one after the other."""
    order = [(event.index, event.kind) for event in robot.events]
    started = [index for index, kind in order if kind == "started"]
    assert started == sorted(set(started))
    assert order == [(index, kind) for index in started for kind in ("started", "finished")]
    assert robot.made <= set(started)
    if all_of is not None:
        assert started == list(range(all_of))


@examples(50)
@given(plans(), st.lists(st.booleans(), min_size=1), st.integers(0, 2**32))
def test_a_whole_plan_makes_up_for_segments_that_got_lost(
    plan: Written, returns: list[Value], seed: int
) -> None:
    whole = Robot(returns)
    whole.interpreter.add(0, plan.text, final=True)
    rng, robot = random.Random(seed), Robot(returns)
    texts = segments_of(plan)
    for index, text in enumerate(texts):
        if rng.random() < 0.7:
            robot.interpreter.add(index, text, final=index == len(texts) - 1)
            robot.go_on(rng.choice([0, 1, 100_000]))
    robot.interpreter.complete(plan.text)
    assert robot.go_on() == whole.go_on()
    assert robot.calls == whole.calls


def test_a_plan_that_goes_on_is_waited_for() -> None:
    robot = Robot([True])
    assert isinstance(robot.go_on(), NeedMore)
    robot.interpreter.add(0, "mf(10);")
    action = robot.interpreter.next()
    assert isinstance(action, Do)
    assert (str(action.call), action.index) == ("mf(10)", 0)
    assert robot.interpreter.next() == action
    robot.interpreter.resume(True)
    assert isinstance(robot.go_on(), NeedMore)
    robot.interpreter.add(1, "tp()", final=True)
    assert robot.go_on() == Ended()
    assert robot.names == ["tp()"]


def test_a_segment_is_executed_only_after_those_before_it() -> None:
    robot = Robot([True])
    robot.interpreter.add(1, "mf(20);", final=True)
    assert isinstance(robot.go_on(), NeedMore)
    assert not robot.events
    robot.interpreter.add(0, "mf(10);")
    assert robot.go_on() == Ended()
    assert robot.names == ["mf(10)", "mf(20)"]


def test_a_loop_begins_before_its_end_has_come() -> None:
    robot = Robot([True])
    robot.interpreter.add(0, "2{mf(10);")
    robot.go_on()
    robot.interpreter.add(1, "tc(90);")
    robot.go_on()
    assert robot.names == ["mf(10)", "tc(90)"]
    robot.interpreter.add(2, "}", final=True)
    assert robot.go_on() == Ended()
    assert robot.names == ["mf(10)", "tc(90)"] * 2
    check_events(robot, all_of=3)


def test_a_block_that_is_not_entered_is_skipped_with_all_blocks_inside() -> None:
    robot = run("?iv('a'){", "?iv('b'){", "2{mf(10);", "}", "}};tp();", returns=False)
    assert robot.names == ["iv('a')", "tp()"]
    assert [event.index for event in robot.events if event.skipped] == [1, 2, 3]
    check_events(robot, all_of=5)


def test_a_segment_skipped_in_the_first_round_of_a_loop_stays_reported_as_skipped() -> None:
    robot = run("2{?iv('a'){", "g('a');", "}}", returns=[False, True])
    assert robot.names == ["iv('a')", "iv('a')", "g('a')"]
    assert [event.index for event in robot.events if event.skipped] == [1]


def test_a_repeated_last_segment_adds_only_its_closing_brackets() -> None:
    robot = Robot([True])
    robot.interpreter.add(0, "?iv('a'){")
    robot.interpreter.add(1, "g('a');")
    assert isinstance(robot.go_on(), NeedMore)
    robot.interpreter.add(1, "g('a');};", final=True)
    robot.interpreter.add(1, "g('a');")
    robot.interpreter.add(1, "g('a');};", final=True)
    assert robot.go_on() == Ended()
    assert robot.names == ["iv('a')", "g('a')"]
    check_events(robot, all_of=2)


def test_a_repeated_last_segment_may_overtake_the_one_before_it() -> None:
    robot = Robot([True])
    robot.interpreter.add(1, "g('a');")
    robot.interpreter.add(1, "g('a');};", final=True)
    robot.interpreter.add(1, "g('a');")
    robot.interpreter.add(0, "?iv('a'){")
    assert robot.go_on() == Ended()
    assert robot.names == ["iv('a')", "g('a')"]


def test_a_return_inside_a_block_ends_the_plan() -> None:
    robot = run("3{mf(10);", "?iv('a'){", "->'here';", "}}->False;")
    assert robot.last == Ended("here")
    assert robot.last.returned
    assert robot.names == ["mf(10)", "iv('a')"]
    assert [(e.kind, e.index, e.skipped) for e in robot.events][-1] == ("finished", 2, False)


def test_returning_false_is_returning() -> None:
    assert Ended(False).returned
    assert not Ended().returned


def test_a_plan_without_a_return_has_no_value() -> None:
    assert run("tp();").last == Ended(None)


@pytest.mark.parametrize(
    ("seen", "calls"),
    [
        ("", "iv(a) iv(c)"),
        ("a", "iv(a) iv(b) iv(c)"),
        ("ab", "iv(a) iv(b) tp"),
        ("b", "iv(a) iv(c)"),
        ("c", "iv(a) iv(c) iv(d)"),
        ("ac", "iv(a) iv(b) iv(c) iv(d)"),
        ("cd", "iv(a) iv(c) iv(d) tp"),
        ("abcd", "iv(a) iv(b) tp"),
    ],
)
def test_and_goes_before_or_and_no_call_is_made_in_vain(seen: str, calls: str) -> None:
    interpreter, made = Interpreter(DRONE), []
    interpreter.add(0, "?iv('a')&iv('b')|iv('c')&iv('d'){tp();}", final=True)
    while isinstance(action := interpreter.next(), Do):
        name = "".join(str(argument) for argument in action.call.arguments)
        made.append(f"{action.call.name}({name})" if name else action.call.name)
        interpreter.resume(name in seen)
    assert " ".join(made) == calls


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("", True, True),
        ("", False, False),
        ("", 0, False),
        ("", 2.5, True),
        ("", "", False),
        ("", "no", True),
        ("==False", 0, True),
        ("!=True", 1, False),
        ("==3", 3, True),
        ("==3", 3.0, True),
        ("!=3", 4, True),
        ("<3", 2.5, True),
        ("<3", 3, False),
        ("<=3", 3, True),
        (">-1", 0, True),
        (">-1", -1, False),
        (">=-1.5", -1.5, True),
        ("=='red'", "red", True),
        ("=='red'", "blue", False),
        ("!='red'", "blue", True),
        ("<'b'", "a", True),
        (">='b'", "a", False),
        ("==3", "3", False),
        ("!=3", "3", True),
        ("<3", "1", False),
        (">'a'", 7, False),
        ("!='a'", 7, True),
        (">True", "x", False),
    ],
)
def test_a_condition_compares_what_the_call_returns(
    condition: str, value: Value, holds: bool
) -> None:
    robot = run(f"?s('cat'){condition}{{tp();}}", returns=value)
    assert ("tp()" in robot.names) == holds


def test_a_segment_that_is_no_plan_is_refused() -> None:
    interpreter = Interpreter(DRONE)
    interpreter.add(0, "mf(10);")
    with pytest.raises(PlanError, match="unknown skill 'fly'"):
        interpreter.add(1, "fly();")


def test_a_plan_that_ends_too_early_is_refused() -> None:
    interpreter = Interpreter(DRONE)
    with pytest.raises(PlanError, match="'}' missing"):
        interpreter.add(0, "2{mf(10);", final=True)


def test_nothing_of_a_segment_is_executed_if_a_later_part_of_it_is_wrong() -> None:
    interpreter = Interpreter(DRONE)
    interpreter.add(0, "mf(10);")
    with pytest.raises(PlanError, match="unknown skill 'fly'"):
        interpreter.add(1, "mf(20);fly();")
    robot = Robot([True], interpreter)
    robot.go_on()
    assert robot.names == ["mf(10)"]


@pytest.mark.parametrize("again", ["mf(20);", "mf(10);tc(90);", "mf(10);?iv('a'){", "mf(10);->7;"])
def test_a_segment_that_comes_again_with_other_words_is_refused(again: str) -> None:
    robot = run_open("mf(10);")
    with pytest.raises(PlanError, match="segment 0 came again with other words"):
        robot.interpreter.add(0, again, final=True)
    robot.go_on()
    assert robot.names == ["mf(10)"]


def test_a_segment_that_waits_and_comes_again_with_other_words_is_refused() -> None:
    interpreter = Interpreter(DRONE)
    interpreter.add(1, "mf(10);")
    with pytest.raises(PlanError, match="segment 1 came again with other words"):
        interpreter.add(1, "mf(20);")


def test_an_older_segment_that_becomes_longer_is_refused() -> None:
    robot = run_open("mf(10);", "tp();")
    with pytest.raises(PlanError, match="segment 0 came again with other words"):
        robot.interpreter.add(0, "mf(10);}", final=True)


@pytest.mark.parametrize("first", [True, False])
def test_what_comes_after_the_last_segment_is_not_executed(first: bool) -> None:
    robot = Robot([True])
    more = [(0, "mf(10);", True), (1, "mf(500);", False)]
    for index, text, final in reversed(more) if first else more:
        robot.interpreter.add(index, text, final)
    assert robot.go_on() == Ended()
    assert robot.names == ["mf(10)"]


def test_a_whole_plan_that_begins_otherwise_is_refused() -> None:
    robot = run_open("mf(10);")
    with pytest.raises(PlanError, match="does not begin with the segments that came"):
        robot.interpreter.complete("tc(90);mf(10);")
    robot.go_on()
    assert robot.names == ["mf(10)"]


def test_a_call_of_a_condition_comes_with_its_term() -> None:
    interpreter = Interpreter(DRONE)
    interpreter.add(0, "?iv('a')<3{tp();")
    action = interpreter.next()
    assert isinstance(action, Do)
    assert action.term is not None
    assert (action.term.comparison, action.term.literal) == ("<", 3)
    interpreter.resume(1)
    action = interpreter.next()
    assert isinstance(action, Do)
    assert (str(action.call), action.term) == ("tp()", None)


def test_later_rounds_of_a_loop_belong_to_the_segment_that_ends_it() -> None:
    robot = Robot([True])
    for index, text in enumerate(("2{mf(10);", "tp();", "}")):
        robot.interpreter.add(index, text, final=index == 2)
    places = []
    while isinstance(action := robot.interpreter.next(), Do):
        places.append((str(action.call), action.index, robot.interpreter.segment))
        robot.interpreter.resume(True)
    assert places == [
        ("mf(10)", 0, 0), ("tp()", 1, 1), ("mf(10)", 0, 2), ("tp()", 1, 2),
    ]  # fmt: skip


def test_sixteen_blocks_inside_each_other_are_executed() -> None:
    deep = "?iv('a'){" * 16 + "tp();" + "}" * 16
    assert run(deep).names == ["iv('a')"] * 16 + ["tp()"]
    with pytest.raises(PlanError, match="nested deeper than 16"):
        run("1{" * 17 + "tp();" + "}" * 17)


def run_open(*segments: str) -> Robot:
    """Return a robot that has executed segments of a plan that goes on."""
    robot = Robot([True])
    for index, text in enumerate(segments):
        robot.interpreter.add(index, text)
        robot.go_on()
    return robot
