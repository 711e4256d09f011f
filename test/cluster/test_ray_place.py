"""Replicas as actors of Ray: what is asked of a cluster, and what it is refused."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.cluster.front import needs_ray
from test.cluster.two_nodes import SAID
from timely_llm.cluster import ray_place
from timely_llm.cluster.ray_place import RayPlace, parse_resources, room
from timely_llm.core import requirements
from timely_llm.core.errors import ConfigurationError, EngineError

NAMES = st.sampled_from(["CPU", "GPU", "arm"])
AMOUNTS = st.integers(1, 8).map(float)


def test_resources_are_numbers_by_name() -> None:
    assert parse_resources([]) == {}
    assert parse_resources(["GPU=1", "edge=0.5"]) == {"GPU": 1.0, "edge": 0.5}


@pytest.mark.parametrize("text", ["GPU", "=1", "GPU=", "GPU=0", "GPU=-1", "GPU=nan", "GPU=inf"])
def test_other_resources_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="must have entries name=number"):
        parse_resources([text])
    with pytest.raises(ConfigurationError, match="each name once"):
        parse_resources(["GPU=1", "GPU=2"])


@given(st.dictionaries(NAMES, AMOUNTS, min_size=1), st.lists(st.dictionaries(NAMES, AMOUNTS)))
def test_as_many_replicas_fit_as_can_be_taken_out_of_the_nodes(
    wanted: dict[str, float], nodes: list[dict[str, float]]
) -> None:
    count = 0
    for node in nodes:
        left = dict(node)
        while all(left.get(name, 0.0) >= amount for name, amount in wanted.items()):
            left = {name: left[name] - wanted.get(name, 0.0) for name in left}
            count += 1
    assert room(wanted, nodes) == count


def test_replicas_that_take_nothing_fit_everywhere() -> None:
    assert room({}, [{}]) is None
    assert room({"arm": 0.1}, [{"arm": 0.3}]) == 3


def test_without_ray_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = requirements._version
    monkeypatch.setattr(
        requirements, "_version", lambda name: None if name == "ray" else found(name)
    )
    with pytest.raises(EngineError, match=r"Ray cluster needs ray, which is not .*\[ray\]'"):
        RayPlace("", [], 1)


@pytest.fixture
def silent() -> Iterator[str]:
    """An address at which connections are taken and nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@needs_ray
@pytest.mark.timeout(200)
class TestWithRay:
    def test_an_address_that_does_not_answer_is_one_sentence(
        self, silent: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ray_place, "ANSWER_S", 4.0)
        for address in (silent, "127.0.0.1:1"):
            with pytest.raises(EngineError, match=f"no Ray cluster answers at '{address}'"):
                RayPlace(address, [], 1)

    def test_a_cluster_of_its_own_is_reached_from_this_machine_with_its_token_alone(self) -> None:
        handler = signal.getsignal(signal.SIGTERM)
        place = RayPlace("", [], 1)
        try:
            assert place.host == "127.0.0.1"
            assert signal.getsignal(signal.SIGTERM) is handler
            token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
            assert stat.S_IMODE(token.stat().st_mode) == 0o600
            assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700
            assert os.environ["RAY_AUTH_MODE"] == "token"
            me = psutil.Process()
            listening = [
                one.laddr.ip
                for process in (me, *me.children(recursive=True))
                for one in process.net_connections("inet")
                if one.status == psutil.CONN_LISTEN
            ]
            assert len(listening) > 2
            assert set(listening) <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
        finally:
            place.close()
        assert "RAY_AUTH_MODE" not in os.environ
        assert not token.parent.exists()
        assert not [one for one in psutil.Process().children(recursive=True) if one.is_running()]

    def test_resources_that_no_node_has_are_refused(self) -> None:
        with pytest.raises(ConfigurationError) as raised:
            RayPlace("", ["arm=1"], 2)
        words = "the Ray cluster has room for 0 of 2 replicas with arm=1: its 1 node has CPU"
        assert str(raised.value).startswith(words)

    def test_replicas_go_to_the_nodes_that_have_their_resources_and_outlive_one(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "test.cluster.two_nodes"],
            capture_output=True, text=True, timeout=150.0, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert [line.removeprefix(SAID) for line in lines if line.startswith(SAID)] == [
            "served by replica-1, replica-2, which leave 0 of 2 arms",
            "8 of 8 plans ended well, those of the dead node elsewhere",
            "with another node: replica-1, replica-2",
            "the Ray cluster has room for 2 of 3 replicas with arm=1: its 3 nodes have CPU, arm,"
            " memory",
        ]

    def test_it_begins_in_a_thread_too(self) -> None:
        """Signal handlers can be set in the main thread alone."""
        made: list[RayPlace] = []
        thread = threading.Thread(target=lambda: made.append(RayPlace("", [], 1)))
        thread.start()
        thread.join(100.0)
        made[0].close()
