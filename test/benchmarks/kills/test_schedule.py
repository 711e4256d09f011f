"""Kills come at random moments, as often as asked, and a process is back before its next one."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from timely_llm.benchmarks.kills.schedule import DISPATCHER, SLOT_S, Kills, schedule

SERVERS = ("s1", "s2", "s3")


@given(st.integers(0, 40), st.integers(0, 20), st.integers(0, 2**31 - 1))
def test_each_process_is_back_before_its_next_kill(count: int, dispatcher: int, seed: int) -> None:
    kills = Kills(count, dispatcher, seed=seed)
    made = schedule(kills, SERVERS)
    assert sum(one.process != DISPATCHER for one in made) == count
    assert sum(one.process == DISPATCHER for one in made) == dispatcher
    assert made == sorted(made, key=lambda one: one.at_s)
    for name in (*SERVERS, DISPATCHER):
        mine = [one for one in made if one.process == name]
        assert all(a.at_s + a.for_s < b.at_s for a, b in pairwise(mine))
        assert all(one.at_s + one.for_s <= kills.duration_s(len(SERVERS)) for one in mine)


def test_a_server_with_a_journal_is_killed_alone_and_only_by_sigkill() -> None:
    kills = Kills(20, journal=True, seed=3)
    made = schedule(kills, ())
    assert {(one.process, one.kind) for one in made} == {(kills.face, "killed")}
    assert len(made) == 20
    assert all(a.at_s + a.for_s < b.at_s for a, b in pairwise(made))
    assert made[-1].at_s + made[-1].for_s <= kills.duration_s(0)


@given(st.integers(0, 40), st.integers(0, 20), st.integers(0, 2**31 - 1))
def test_only_kills_are_as_many_as_asked(count: int, dispatcher: int, seed: int) -> None:
    made = schedule(Kills(count, dispatcher, seed=seed, only_kills=True), SERVERS)
    kinds = Counter((one.process == DISPATCHER, one.kind) for one in made)
    assert kinds == +Counter({(False, "killed"): count, (True, "killed"): dispatcher})


def test_a_seed_gives_the_same_kills_and_another_one_others() -> None:
    one, same, other = (schedule(Kills(10, 2, seed=seed), SERVERS) for seed in (1, 1, 2))
    assert one == same != other


def test_the_dispatchers_last_life_is_long() -> None:
    kills = Kills(100, 20)
    last = [one for one in schedule(kills, SERVERS) if one.process == DISPATCHER][-1]
    assert kills.duration_s(3) - last.at_s > 5 * SLOT_S
