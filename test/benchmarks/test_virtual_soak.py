"""Hours in virtual time: what is wrong with a loop is in the verdict."""

from __future__ import annotations

from typing import Any

import pytest

from timely_llm.benchmarks.soak import Soak, faults
from timely_llm.benchmarks.virtual_soak import rows
from timely_llm.core.request import Result
from timely_llm.serving.publisher import EventPublisher
from timely_llm.serving.removals import Removals

SHORT = Soak(robots=6, minutes=4.0, policy="deadline", seed=3)
USED = {"server_mb", "server_mb_max", "server_mb_growth"}


def run() -> dict[str, Any]:
    (row,) = rows(SHORT, lambda done_s, total_s: None)
    return row


def test_requests_of_all_kinds_end_and_nothing_grows() -> None:
    row = run()
    assert faults(row) == []
    assert row["requests"] == row["finished"] + row["canceled"] + row["errors"] > 50
    assert row["replans"] > 0 and row["answer_tokens"] > 0
    again = run()
    assert {name: row[name] for name in row.keys() - USED} == {
        name: again[name] for name in again.keys() - USED
    }


def test_kv_that_is_not_freed_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = Removals.remove

    def forgets_some(removals: Removals, key: str) -> None:
        if not key.endswith("7"):
            remove(removals, key)

    monkeypatch.setattr(Removals, "remove", forgets_some)
    assert any("tokens of KV that were not free" in fault for fault in faults(run()))


def test_an_end_that_is_not_published_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_out = EventPublisher._hand_out

    def loses_some(publisher: EventPublisher, event: Any) -> None:
        result = getattr(event, "result", None)
        if not (isinstance(result, Result) and result.request_id.endswith("7")):
            hand_out(publisher, event)

    monkeypatch.setattr(EventPublisher, "_hand_out", loses_some)
    assert any("requests without an end" in fault for fault in faults(run()))
