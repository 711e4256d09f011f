"""How busy a machine is, as a run with killed servers measures it."""

import time

import pytest

from timely_llm.benchmarks.kills.machine import STARVED_S, Machine


def test_the_longest_wait_for_a_processor_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    waits = iter([0.125, STARVED_S, 0.0])
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(
        time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds + next(waits))
    )
    machine = Machine()
    machine.nap(1.0)
    assert (machine.waited_s, machine.starved) == (0.125, False)
    machine.nap(1.0)
    machine.nap(1.0)
    assert (machine.waited_s, machine.starved) == (STARVED_S, True)


def test_rows_have_the_load_and_the_wait() -> None:
    machine = Machine()
    machine.look()
    rows = {row["what"]: row["number"] for row in machine.rows()}
    assert rows["load, mean"] == rows["load, most"] >= 0.0
    assert rows["processors"] >= 1
    assert rows["longest wait of a process for a processor, s"] == 0.0
