"""The simulated cloud keeps the contract of clouds, whatever its script says."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.examples import examples
from timely_llm.cloud.contract import Cloud, CloudEnd, CloudEvent, CloudQuestion, CloudWords
from timely_llm.cloud.simulated import CloudFault, CloudPath, SimulatedCloud
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.request import ChatMessage
from timely_llm.engines.simulated import Profile

PACE = Profile("test", "made up", base_s=0.1, row_s=0.05, prefill_token_s=0.001)
AT_ONCE = CloudPath(0.0, math.inf)


def question(key: str = "a", tokens: int = 100, timeout_s: float = 60.0) -> CloudQuestion:
    return CloudQuestion(key, (ChatMessage("user", "why me"),), tokens, timeout_s)


def cloud(
    *faults: CloudFault, answer: str = "one two three", rows: int = 20, path: CloudPath = AT_ONCE
) -> SimulatedCloud:
    return SimulatedCloud(PACE, lambda asked: answer, rows, path, faults)


def all_of(one: Cloud, until_s: float = 1e6) -> list[CloudEvent]:
    """Return everything up to a time, polled whenever something may be new."""
    events: list[CloudEvent] = []
    while (now := one.next_s()) <= until_s:
        events += one.poll(now)
    return events


def ends(events: Sequence[CloudEvent]) -> list[CloudEnd]:
    return [event for event in events if isinstance(event, CloudEnd)]


def words(events: Sequence[CloudEvent], key: str = "a") -> list[CloudWords]:
    return [event for event in events if isinstance(event, CloudWords) and event.key == key]


def test_an_answer_takes_its_prompt_and_a_step_for_each_token() -> None:
    one = cloud()
    one.ask(question(), 5.0)
    events = all_of(one)
    assert [event.text for event in words(events)] == ["one ", "two ", "three"]
    # A step with the 2 tokens of the prompt, then two with one row.
    assert [event.at_s for event in events] == pytest.approx([5.102, 5.252, 5.402, 5.402])
    assert ends(events) == [CloudEnd("a", events[-1].at_s, 2, 3)]


def test_a_second_row_makes_each_step_longer() -> None:
    one = cloud()
    one.ask(question("a"), 0.0)
    one.ask(question("b"), 0.0)
    assert [end.at_s for end in ends(all_of(one))] == pytest.approx([0.104 + 2 * 0.2] * 2)


def test_a_question_waits_for_a_row() -> None:
    one = cloud(rows=1)
    for key in "ab":
        one.ask(question(key), 0.0)
    one.poll(0.0)
    assert (one.decoding, one.waiting) == (1, 1)
    assert [end.at_s for end in ends(all_of(one))] == pytest.approx([0.402, 0.804])


def test_the_seconds_of_an_answer_follow_the_load() -> None:
    one = cloud(rows=2)
    assert one.answer_s(10) == pytest.approx(1.5)
    for key in "abc":
        one.ask(question(key), 0.0)
    one.poll(0.0)
    assert one.answer_s(10) == pytest.approx(2.0)


def test_words_take_the_round_trip_and_the_bandwidth() -> None:
    one = cloud(path=CloudPath(1.0, 8e-5))  # 10 bytes a second
    one.ask(question(), 0.0)
    events = words(all_of(one))
    # The question takes 0.6 s and 0.5 s. The words follow each other on the link.
    first_s = 1.1 + 0.102
    assert [event.at_s for event in events] == pytest.approx(
        [first_s + 0.9, first_s + 1.3, first_s + 1.8]
    )


def test_an_answer_ends_at_the_most_tokens() -> None:
    one = cloud()
    one.ask(question(tokens=2), 0.0)
    events = all_of(one)
    assert len(words(events)) == ends(events)[0].tokens == 2


def test_a_cloud_that_is_gone_ends_a_question_at_its_timeout() -> None:
    one = cloud(CloudFault("gone", 0.0, 50.0))
    one.ask(question(timeout_s=3.0), 1.0)
    assert all_of(one) == [
        CloudEnd("a", 4.0, 2, error="the cloud's answer was not whole within 3 s")
    ]


def test_words_that_are_lost_leave_an_answer_without_its_end() -> None:
    one = cloud(CloudFault("gone", 0.2, 0.3))
    one.ask(question(timeout_s=3.0), 0.0)
    events = all_of(one)
    assert [event.text for event in words(events)] == ["one "]
    assert [end.at_s for end in ends(events)] == [3.0]


def test_a_slow_cloud_is_late() -> None:
    one = cloud(CloudFault("slow", delay_s=10.0))
    one.ask(question(), 0.0)
    assert words(all_of(one))[0].at_s == pytest.approx(10.102)


def test_a_cloud_that_refuses_says_why_after_a_round_trip() -> None:
    one = cloud(CloudFault("error", reason="it answered 429"), path=CloudPath(1.0, math.inf))
    one.ask(question(), 2.0)
    assert all_of(one, 10.0) == [CloudEnd("a", 3.0, 2, error="it answered 429")]


def test_an_answer_that_is_cut_ends_with_an_error_and_its_words() -> None:
    one = cloud(CloudFault("cut", tokens=2, reason="the connection closed"))
    one.ask(question(), 0.0)
    events = all_of(one)
    assert len(words(events)) == 2
    assert (ends(events)[0].tokens, ends(events)[0].error) == (2, "the connection closed")


def test_a_canceled_question_has_no_more_events_and_frees_its_row() -> None:
    one = cloud(rows=1)
    one.ask(question("a"), 0.0)
    one.ask(question("b"), 0.0)
    one.poll(0.12)
    one.cancel("a")
    one.cancel("unknown")
    assert {event.key for event in all_of(one)} == {"b"}


def test_a_key_may_come_again_after_its_end() -> None:
    one = cloud()
    one.ask(question(), 0.0)
    with pytest.raises(ConfigurationError, match="answered already"):
        one.ask(question(), 0.1)
    all_of(one, 1.0)
    one.ask(question(), 2.0)
    assert len(ends(all_of(one))) == 1


def test_closing_leaves_nothing() -> None:
    one = cloud()
    one.ask(question(), 0.0)
    one.close()
    assert all_of(one) == []


def test_impossible_clouds_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least one row"):
        cloud(rows=0)
    with pytest.raises(ConfigurationError, match="bandwidth above 0"):
        CloudPath(0.0, 0.0)


_times = st.floats(0.0, 8.0)
_faults = st.builds(
    CloudFault, st.sampled_from(["gone", "slow", "error", "cut"]), _times, _times,
    delay_s=st.floats(0, 20), tokens=st.integers(0, 4),
)  # fmt: skip


@examples(60)
@given(
    st.lists(st.tuples(_times, st.integers(0, 6), st.floats(0.1, 5)), min_size=1, max_size=6),
    st.lists(_faults, max_size=3),
    st.integers(1, 3),
    st.data(),
)
def test_each_question_has_one_end_within_its_timeout_and_none_after_it(
    asked: list[tuple[float, int, float]],
    faults: list[CloudFault],
    rows: int,
    data: st.DataObject,
) -> None:
    one = SimulatedCloud(
        PACE, lambda q: ["w"] * int(q.key.split("-")[1]), rows, CloudPath(0.1, 1.0), faults
    )
    canceled, events = set(), []
    timeouts = {}
    for place, (at_s, tokens, timeout_s) in enumerate(sorted(asked)):
        events += one.poll(at_s)
        key = f"{place}-{tokens}"
        one.ask(question(key, timeout_s=timeout_s), at_s)
        timeouts[key] = at_s + timeout_s
        if data.draw(st.booleans()):
            one.cancel(key)
            canceled.add(key)
    events += all_of(one)
    over: set[str] = set()
    for event in events:
        assert event.key not in canceled | over
        assert event.at_s <= timeouts[event.key]
        if isinstance(event, CloudEnd):
            over.add(event.key)
    assert over == timeouts.keys() - canceled
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)
