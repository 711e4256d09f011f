from __future__ import annotations

import json

from test.core.events.lines import event
from test.demo.test_summary import ask, done
from test.demo.two_servers import RUN, run_until, taken
from timely_llm.core.events.history import History
from timely_llm.demo.summary import outages


def test_a_request_that_went_on_elsewhere_is_counted() -> None:
    (outage,) = outages(run_until())
    assert str(outage) == (
        "s2 was killed at 1.0 s and served again at 4.0 s. Of the 1 request that it had, 1 went on"
        " at other servers: nothing was lost."
    )
    assert json.loads(json.dumps(outage.as_json())) == {
        "server": "s2", "gone_s": 1.0, "back_s": 4.0, "requests": 1, "elsewhere": 1,
        "at_itself": 0, "without_end": 0,
    }  # fmt: skip


def test_a_request_without_an_end_is_not_hidden() -> None:
    (outage,) = outages(run_until(3.0))
    assert "s2 was killed at 1.0 s and did not come back." in str(outage)
    assert "1 ended with an error or not at all." in str(outage)
    assert "nothing was lost" not in str(outage)
    assert outage.as_json()["back_s"] is None
    failed = history_with_error()
    (outage,) = outages(failed)
    assert (outage.requests, outage.elsewhere, outage.without_end) == (1, 0, 1)


def test_a_request_with_a_complete_plan_needs_no_server() -> None:
    run = History()
    lines = [
        ("", ask(1.0, "a1", True)), ("s1", taken(1.0, "a1")), ("s2", taken(1.0, "x1")),
        ("", done(3.0, "a1", 0.2)),
    ]  # fmt: skip
    for server, line in lines:
        run.add(event(line), server)
    run.servers["s1"].gone(2.0)
    run.servers["s2"].gone(2.5)
    first, second = outages(run)
    assert "Of the 1 request that it had, 1 needed no server any more: nothing was lost" in str(
        first
    )
    assert "It had no requests then." in str(second), "no robot of the demo asked for x1"


def history_with_error() -> History:
    run = History()
    for server, line in RUN:
        run.add(event(line), server)
        if line["event"] == "segment":
            break
    run.servers["s2"].gone(2.0)
    run.add(event(done(4.0, "a1", 0.3, outcome="error", error_code=8)))
    return run
