"""What all engines have in common when several steps are in flight."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from test.engines.conftest import ANSWER
from timely_llm.core.errors import EngineError
from timely_llm.policies.contract import StepPlan

if TYPE_CHECKING:
    from test.engines.conftest import Driver, MakeEngine
    from timely_llm.engines.contract import Engine, StepResult

Steps = list[dict[str, int]]
schedules = st.lists(
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from([1, 2, 7, 30]), min_size=1),
    max_size=60,
)


@pytest.fixture
def flights(engine: Engine, driver: Driver) -> Flights:
    """An engine with room for more than one step."""
    if engine.in_flight == 1:
        pytest.skip("one step at a time")
    return Flights(driver)


class Flights:
    """Keeps as many steps in flight as it can, each with all that may take part in it."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.engine = driver.engine
        self.computed: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self._coming: Counter[str] = Counter()
        self._plans: deque[dict[str, int]] = deque()

    def add(self, key: str) -> None:
        self._left[key] = self.driver.add_task(key)

    def can_compute(self, key: str) -> int:
        """Return how many of a sequence's tokens may be in the next plan."""
        return self._left[key] + (self._coming[key] if self.engine.ahead else 0)

    def step(self, entries: dict[str, int], evictable: tuple[str, ...] = ()) -> None:
        """Submit a step of those that can take part; collect one if there is no room for more."""
        wanted = {key: min(n, self.can_compute(key)) for key, n in entries.items()}
        wanted = {key: tokens for key, tokens in wanted.items() if tokens}
        if wanted:
            self.engine.submit(StepPlan(tuple(wanted.items()), evictable))
            self._plans.append(wanted)
            for key, tokens in wanted.items():
                self._left[key] -= tokens
                self._coming[key] += self._left[key] + self._coming[key] == 0
        if self._plans and (not wanted or len(self._plans) == self.engine.in_flight):
            self.collect()

    def collect(self) -> StepResult:
        result = self.engine.collect()
        assert result.computed == self._plans.popleft()
        assert not result.failures and not result.evicted
        self.computed.update(result.computed)
        for key, (token,) in result.tokens.items():
            self.driver.said[key].append(token)
            self._left[key] += 1
            self._coming[key] -= 1
        return result

    def collect_all(self) -> None:
        while self._plans:
            self.collect()


def test_too_many_steps(engine: Engine, driver: Driver, fixed: str) -> None:
    driver.add("a", fixed)
    with pytest.raises(EngineError, match="no step to collect"):
        engine.collect()
    for _ in range(engine.in_flight):
        engine.submit(StepPlan((("a", 5),)))
    with pytest.raises(EngineError, match="collect the submitted step"):
        engine.submit(StepPlan((("a", 5),)))
    for _ in range(engine.in_flight):
        assert engine.collect().computed == {"a": 5}
    with pytest.raises(EngineError, match="no step to collect"):
        engine.collect()


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(schedule=schedules)
def test_any_schedule_gives_the_same_tokens_and_computes_none_twice(
    engine: Engine,
    answers: dict[str, list[int]],
    schedule: Steps,
    drive: type[Driver],
    tasks: dict[str, str],
) -> None:
    if engine.in_flight == 1:
        pytest.skip("one step at a time")
    flights = Flights(drive(engine))
    for key in tasks:
        flights.add(key)
    for entries in schedule:
        flights.step(entries, tuple(key for key in tasks if key not in entries))
    flights.collect_all()
    said = flights.driver.said
    for key in tasks:
        both = min(len(said[key]), len(answers[key]))
        assert said[key][:both] == answers[key][:both]
        prompt = len(engine.tokenizer.encode(tasks[key]))
        assert flights.computed[key] + flights.can_compute(key) == prompt + len(said[key])
    flights.driver.remove_all()


def test_who_waits_for_a_token_takes_no_part(flights: Flights) -> None:
    flights.add("a")
    left = flights.can_compute("a")
    flights.engine.submit(StepPlan((("a", left),)))
    again = StepPlan((("a", 1),))
    if flights.engine.ahead:
        flights.engine.submit(again)
        assert flights.engine.collect().computed == {"a": left}
        assert flights.engine.collect().computed == {"a": 1}
        return
    with pytest.raises(EngineError, match="still to come"):
        flights.engine.submit(again)
    flights.engine.collect()


@pytest.mark.parametrize("way", ["take_back", "append", "resume", "remove"])
def test_who_is_struck_out_gets_nothing_of_steps_in_flight(
    flights: Flights, answers: dict[str, list[int]], way: str, fixed: str
) -> None:
    engine, driver = flights.engine, flights.driver
    for key in "ac":
        flights.add(key)
    while len(driver.said["a"]) < 3:
        flights.step({"a": 512, "c": 512})
    flights.collect_all()
    said = len(driver.said["a"])
    engine.submit(StepPlan((("a", 1), ("c", 1))))
    words = engine.tokenizer.encode(" Yes.")
    if way == "take_back":
        left = engine.take_back("a", 0)
    elif way == "append":
        left = engine.append("a", words)
    elif way == "resume":
        left = engine.resume("a", "b", words)
    else:
        engine.remove("a")
    result = engine.collect()
    assert result.computed == {"c": 1}
    assert {key: list(tokens) for key, tokens in result.tokens.items()} == {
        "c": [answers["c"][len(driver.said["c"])]]
    }
    if way == "remove":
        return
    key = "b" if way == "resume" else "a"
    assert left >= 1 + (0 if way == "take_back" else len(words))
    engine.submit(StepPlan(((key, left),)))
    again = engine.collect()
    assert again.computed == {key: left}
    if way == "take_back":
        assert list(again.tokens["a"]) == answers["a"][said : said + 1]
    engine.remove("b")


def test_who_is_in_flight_gives_up_no_memory(
    make: MakeEngine, drive: type[Driver], answers: dict[str, list[int]]
) -> None:
    engine = make(max_rows=4, kv_tokens=256)
    try:
        if engine.in_flight == 1:
            pytest.skip("one step at a time")
        flights = Flights(drive(engine))
        flights.add("a")
        flights.step({"a": flights.can_compute("a") - 1})
        flights.driver.add_ids("x", [5] * 250)
        engine.submit(StepPlan((("x", 250),), ("a",)))
        (first, second) = (engine.collect(), engine.collect())
        assert "a" not in first.evicted + second.evicted
        assert "no room" in second.failures["x"]
    finally:
        engine.close()


def test_an_answer_when_all_take_turns(flights: Flights, answers: dict[str, list[int]]) -> None:
    for key in answers:
        flights.add(key)
    said = flights.driver.said
    while any(len(said[key]) < ANSWER for key in said):
        for keys in ("ab", "cd"):
            flights.step(dict.fromkeys(keys, 512))
    assert {key: said[key][:ANSWER] for key in said} == answers
    flights.collect_all()
