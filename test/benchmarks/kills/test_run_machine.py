"""How busy a machine is, as a run with killed servers measures it."""

import os

import pytest

from timely_llm.benchmarks.kills import run as machine
from timely_llm.benchmarks.kills.run import STARVED_S, Machine, waited_s


def test_the_longest_wait_between_two_looks_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = {1: 40.0, 2: 0.0}
    monkeypatch.setattr(machine, "waited_s", waits.__getitem__)
    made = Machine()
    made.look(waits)
    assert made.waited_s == 0.0, "what was before the first look does not count"
    waits[1] += 0.125
    made.look(waits)
    assert (made.waited_s, made.starved) == (0.125, False)
    waits[2] += STARVED_S
    made.look(waits)
    made.look(waits)
    assert (made.waited_s, made.starved) == (STARVED_S, True)


def test_waits_of_a_process_grow_and_of_none_are_0() -> None:
    before_s = waited_s(os.getpid())
    assert 0.0 <= before_s <= waited_s(os.getpid())
    assert waited_s(2**30) == 0.0


def test_rows_have_the_load() -> None:
    made = Machine()
    made.look([os.getpid()])
    rows = {row["what"]: row["number"] for row in made.rows()}
    assert rows["load, mean"] == rows["load, most"] >= 0.0
    assert rows["processors"] >= 1
