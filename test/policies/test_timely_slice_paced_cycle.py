"""Columns that wait for their listeners."""

import math

import pytest

from test.policies.builders import stream, talking
from timely_llm.core.generation import StreamGeneration
from timely_llm.core.slo import REAL_TIME, TEXT, VOICE, Slo, SloClass
from timely_llm.policies.slice import SliceTask
from timely_llm.policies.timely_slice import PacedCycle


def cycle(*streams: StreamGeneration, credit_tokens: float = 1.0) -> PacedCycle:
    tasks = [SliceTask(s.key, s.request.slo.tpot_s) for s in streams]
    return PacedCycle(tasks, 0.0, 1.0, credit_tokens, 0.04, even=False)


def test_no_stream_gets_more_than_a_token_ahead() -> None:
    voice = talking("v", of_class=VOICE)
    paced = cycle(voice)
    for column in range(8):
        assert not paced.over(0.125 * column)
        assert paced.turn([voice], 0.125 * column) == ([voice], math.inf)
        voice.token_ids.append(0)
        if column < 7:
            joining, wake_s = paced.turn([voice], 0.125 * column + 0.02)
            assert not joining
            assert wake_s == pytest.approx(0.125 * (column + 1))
    assert paced.over(0.9)


def test_without_a_limit_to_its_credit_one_column_follows_the_other() -> None:
    voice = talking("v", of_class=VOICE, tokens=50)
    paced = cycle(voice, credit_tokens=math.inf)
    assert [paced.turn([voice], 0.0)[0] for _ in range(8)] == [[voice]] * 8


def test_a_column_goes_when_the_first_of_its_streams_may_have_a_token() -> None:
    ahead, reader = talking("v", of_class=VOICE, tokens=3), talking("t", of_class=TEXT, tokens=2)
    paced = cycle(reader, ahead)  # the next ones are due at 0.375 and 0.2
    assert paced.turn([ahead, reader], 0.0) == ([], 0.1)
    assert paced.turn([ahead, reader], 0.1)[0] == [reader]


def test_a_new_or_late_stream_or_one_with_a_deadline_does_not_wait_for_a_column() -> None:
    late = talking("l", tokens=2, first_s=-0.2)
    pressing = [stream("n"), late, talking("r", of_class=REAL_TIME, tokens=9)]
    paced = cycle(*pressing)
    for _ in range(30):
        assert paced.turn(pressing, -0.03)[0] == pressing
    assert paced.over(-0.03)


def test_a_cycle_does_not_wait_for_ever_for_those_who_ask_for_little() -> None:
    slow = talking("s", of_class=SloClass("slow", Slo(tpot_s=3600.0)), tokens=2)
    paced = cycle(slow)
    assert paced.turn([slow], 0.5) == ([], 1.5)
    assert paced.turn([slow], 0.7) == ([], 1.5)
    assert not paced.over(1.4)
    assert paced.over(1.5)


def test_streams_that_were_not_selected_get_nothing_and_an_empty_cycle_ends() -> None:
    voice, other = talking("v", of_class=VOICE), stream("o")
    assert cycle(voice).turn([voice, other], 0.0)[0] == [voice]
    assert cycle().turn([other], 0.0) == ([], 1.0)
    assert not cycle().over(0.9)
    assert cycle().over(1.0)
