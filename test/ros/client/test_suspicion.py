"""Any node can say that a server cannot be used; the server has time to refute it."""

from __future__ import annotations

from timely_llm.ros.client.suspicion import PROOF_S, Suspicion


def test_what_another_node_says_of_a_server_counts_when_that_one_proves_nothing() -> None:
    suspicion = Suspicion()
    assert suspicion.confirmed(0.0) == ""
    suspicion.rises("it has interface 7", 0.1)
    assert suspicion.confirmed(1.0) == ""
    suspicion.rises("it signs nothing", 1.1)
    assert suspicion.confirmed(0.1 + PROOF_S - 0.01) == ""
    assert suspicion.confirmed(0.1 + PROOF_S) == "it signs nothing"
    assert suspicion.confirmed(0.2 + PROOF_S) == "it signs nothing", "each question hears it"


def test_a_proof_ends_a_suspicion() -> None:
    suspicion = Suspicion()
    suspicion.confirmed(0.0)
    suspicion.rises("it has interface 7", 0.1)
    suspicion.confirmed(2.0)
    suspicion.clear()
    assert suspicion.confirmed(4.0) == ""


def test_a_suspicion_of_an_earlier_search_gives_a_server_its_time() -> None:
    suspicion = Suspicion()
    suspicion.confirmed(0.0)
    suspicion.rises("it has interface 7", 0.1)
    later = 0.1 + PROOF_S + 10.0
    assert suspicion.confirmed(later) == ""
    suspicion.rises("it has interface 7", later)
    assert suspicion.confirmed(later + PROOF_S - 0.1) == ""
