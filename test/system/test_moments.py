"""A signal at any moment of a server's life ends it in order; each client gets its result."""

from __future__ import annotations

import signal
import time
from collections import Counter
from typing import Any

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState

from test.system.conftest import Process, Start
from test.system.ros_client import PATIENT, WAIT_S, Client, handles
from timely_llm.core.request import ErrorCode

pytestmark = pytest.mark.faults

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STARTS = [
    pytest.param(round(n / 10, 1), SIGNALS[n % 3], id=f"{n}0 % of a start, {SIGNALS[n % 3].name}")
    for n in range(11)
]
GOALS = 6
ENDS = [
    pytest.param(kinds, deactivated, id=f"{'inactive' if deactivated else 'active'}, {names}")
    for kinds, deactivated, names in (
        ((signal.SIGINT,), False, "SIGINT"),
        ((signal.SIGTERM,), False, "SIGTERM"),
        ((signal.SIGHUP,), False, "SIGHUP"),
        ((signal.SIGINT,), True, "SIGINT"),
        ((signal.SIGTERM,), True, "SIGTERM"),
        ((signal.SIGHUP,), True, "SIGHUP"),
        ((signal.SIGINT, signal.SIGINT), False, "SIGINT twice"),
        ((signal.SIGTERM, signal.SIGHUP), False, "SIGTERM and SIGHUP"),
        ((signal.SIGHUP, signal.SIGINT, signal.SIGTERM), False, "all three"),
    )
]


def ready(server: Process) -> bool:
    """Return whether a server serves; fail if it has ended."""
    assert server.popen.poll() is None, server.output
    return "ready: " in server.output


@pytest.fixture(scope="module")
def start_s(start: Start) -> float:
    """Seconds that a start takes here and now."""
    began_s = time.monotonic()
    server = start("plan_server", **PATIENT)
    while not ready(server):
        assert time.monotonic() < began_s + WAIT_S, server.output
        time.sleep(0.01)
    took_s = time.monotonic() - began_s
    server.stop()
    return took_s


@pytest.mark.parametrize(("share", "kind"), STARTS)
def test_a_signal_while_a_server_starts_ends_it_in_one_sentence(
    start: Start, start_s: float, share: float, kind: signal.Signals
) -> None:
    server = start("plan_server", **PATIENT)
    time.sleep(share * start_s)
    # Until the package's first lines have run, the signal is Python's.
    ours = handles(server.popen.pid, signal.SIGTERM)
    server.popen.send_signal(kind)
    status = server.wait(WAIT_S)
    if ours:
        assert status == 0, server.output
        assert "Traceback" not in server.output
        assert server.output.count(f"ended by {kind.name}; nothing is left running") == 1


@pytest.mark.parametrize(("kinds", "deactivated"), ENDS)
def test_each_goal_has_one_result_whichever_signals_end_the_server(
    start: Start, domain: int, kinds: tuple[signal.Signals, ...], deactivated: bool
) -> None:
    server = start("plan_server", **PATIENT, shutdown_drain_s=3600.0, drain_timeout_s=3600.0)
    client = Client(domain)
    client.wait_for_action()
    names = [f"goal {n}" for n in range(GOALS)]
    # Agents of their own: one agent may not take all.
    sent = [client.send(client.goal(one, agent=one, skill_set="patient")) for one in names]
    results = [handle.get_result_async() for handle in sent]
    client.until_listed(dict.fromkeys(names, "blocked"))
    if deactivated:
        asked: Any = {"transition": Transition(id=Transition.TRANSITION_DEACTIVATE)}
        assert client.call(ChangeState, "change_state", **asked).success
    # One signal lets open plans be finished: another one ends them.
    for kind in (*kinds, *(signal.SIGINT,) * (len(kinds) == 1)):
        server.popen.send_signal(kind)
        end_s = time.monotonic() + 0.3
        client.until(lambda end_s=end_s: time.monotonic() > end_s)  # type: ignore[misc]
    client.until(lambda: all(result.done() for result in results))
    codes = Counter(ErrorCode(result.result().result.error_code) for result in results)
    client.close()
    assert codes == {ErrorCode.SHUTTING_DOWN: GOALS}
    assert server.wait(WAIT_S) == 0
    assert "Traceback" not in server.output
