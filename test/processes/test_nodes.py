"""Command lines and environments of nodes."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from timely_llm.processes.nodes import DOMAINS, occupied_domains, random_domain


def test_no_two_random_domains_are_the_same() -> None:
    domains = {random_domain() for _ in range(20)}
    assert len(domains) == 20 and domains <= set(DOMAINS)
    asked = "from timely_llm.processes.nodes import random_domain; print(random_domain())"
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", asked], capture_output=True, check=True)
        assert int(done.stdout) not in domains


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the ports")
def test_a_domain_in_which_a_participant_listens_is_not_taken() -> None:
    domain = random_domain()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as participant:
        participant.bind(("127.0.0.1", 7400 + 250 * domain + 10))
        assert domain in occupied_domains()
        assert domain not in {random_domain() for _ in range(10)}
    assert domain not in occupied_domains()
