"""Parameters that ask for replicas."""

import pytest

from test.cluster.front import Front, values
from timely_llm.cluster import setup
from timely_llm.cluster.place import Processes
from timely_llm.cluster.replicas import own_file
from timely_llm.cluster.setup import is_cluster, open_place
from timely_llm.core.errors import ConfigurationError


def test_one_server_in_this_process_is_the_default() -> None:
    assert not is_cluster(values())
    assert is_cluster(values(replicas=2))
    assert is_cluster(values(cluster="ray"))


def test_processes_are_the_default_of_several() -> None:
    assert isinstance(open_place(values(replicas=2)), Processes)


@pytest.mark.parametrize(
    "cluster",
    ["", "slurm", "ray:", "ray:127.0.0.1", "ray:127.0.0.1:abc", "ray:::1:6379", "processes:3",
     "Ray", "ray\n"],
)  # fmt: skip
def test_another_cluster_is_refused(cluster: str) -> None:
    with pytest.raises(ConfigurationError, match="must be processes, ray or ray:HOST:PORT, not"):
        Front(replicas=2, cluster=cluster)


def test_processes_take_no_resources() -> None:
    with pytest.raises(ConfigurationError, match="is for replicas in a Ray cluster"):
        open_place(values(replicas=2, replica_resources=["GPU=1"]))


FAR = "ray:10.0.0.5:6379"


@pytest.fixture
def any_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let replicas be processes in any cluster, and Ray's variable unset."""
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setattr(setup, "open_place", lambda values: Processes())


@pytest.mark.usefixtures("any_place")
@pytest.mark.parametrize(("cluster", "mode"), [("ray:127.0.0.1:6379", ""), (FAR, "disabled")])
def test_a_ray_cluster_without_a_token_is_logged(
    cluster: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mode:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    front = Front(replicas=1, cluster=cluster)
    front.close()
    words = f"this node has no token for the Ray cluster at '{cluster[4:]}'"
    assert [line.startswith(words) for line in front.log].count(True) == 1


@pytest.mark.usefixtures("any_place")
def test_a_ray_cluster_on_other_machines_needs_a_token_or_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for cluster in (FAR, "ray:head:6379", "ray:127.0.0.1.example.org:6379"):
        with pytest.raises(ConfigurationError, match=r"no token.*RAY_AUTH_MODE=disabled if"):
            Front(replicas=1, cluster=cluster)
    assert not setup.without_token("ray") and not setup.without_token("processes")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert not setup.without_token(FAR)


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("", ""),
        ("run.jsonl", "run.replica-1.jsonl"),
        ("/logs.d/run", "/logs.d/run.replica-1"),
    ],
)
def test_replicas_do_not_share_a_file(path: str, own: str) -> None:
    assert own_file(path, "replica-1") == own
