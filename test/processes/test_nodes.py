"""Command lines and environments of nodes."""

from __future__ import annotations

import subprocess
import sys

from timely_llm.processes.nodes import DOMAINS, random_domain


def test_no_two_random_domains_are_the_same() -> None:
    domains = {random_domain() for _ in range(20)}
    assert len(domains) == 20 and domains <= set(DOMAINS)
    asked = "from timely_llm.processes.nodes import random_domain; print(random_domain())"
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", asked], capture_output=True, check=True)
        assert int(done.stdout) not in domains
