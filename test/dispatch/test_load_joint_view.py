"""The view of several replicas as that of one server."""

from __future__ import annotations

from dataclasses import replace

from pytest import approx

from timely_llm.dispatch.contract import MOST_DUE, Due, ServerView
from timely_llm.dispatch.load import joint_view

ONE = ServerView(
    "replica-1", (0.01, 0.011, 0.012), 0.001, 0.0002, 1000, 400, 8, {"drone": 500},
    {("ann", "talk"): 60}, (5.0,), (Due(0.2, 8.0), Due(3.0, 4.0)),
)  # fmt: skip
TWO = replace(
    ONE, name="replica-2", free_kv_tokens=300, skill_sets={"drone": 500, "arm": 90},
    kept={("bob", "talk"): 70}, rates=(), due=(Due(1.0, 8.0),),
)  # fmt: skip


def test_one_replica_looks_as_it_is() -> None:
    alone = joint_view("/plan_server", [ONE])
    assert alone == replace(ONE, name="/plan_server", steps_s=alone.steps_s)
    assert [alone.step_s(rows) for rows in range(1, 20)] == approx(
        [ONE.step_s(rows) for rows in range(1, 20)]
    )


def test_replicas_have_their_memory_and_rows_together() -> None:
    both = joint_view("/plan_server", [ONE, TWO])
    assert (both.kv_tokens, both.free_kv_tokens, both.max_rows) == (2000, 700, 16)
    assert both.skill_sets == {"drone": 500, "arm": 90}
    assert both.kept == {("ann", "talk"): 60, ("bob", "talk"): 70}
    assert both.rates == (5.0,)
    assert [one.due_in_s for one in both.due] == [0.2, 1.0, 3.0]


def test_each_replica_computes_its_part_of_the_rows() -> None:
    both = joint_view("/plan_server", [ONE, TWO])
    assert both.step_s(1) == both.step_s(2) == approx(0.01)
    assert both.step_s(6) == approx(0.012)
    assert both.step_s(100) == approx(ONE.step_s(50))
    assert both.prefill_token_s == approx(0.0001)


def test_a_view_of_busy_replicas_fits_into_a_message() -> None:
    busy = replace(ONE, due=tuple(Due(float(place), 1.0) for place in range(MOST_DUE)))
    assert len(joint_view("/plan_server", [busy] * 3).due) == MOST_DUE
