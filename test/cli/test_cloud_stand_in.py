"""`timely-llm cloud-stand-in` as a process."""

from __future__ import annotations

import signal
import subprocess
import sys

from test.cloud.asking import Asking


def test_it_prints_its_url_and_ends_in_a_sentence() -> None:
    command = "from timely_llm.entry import main; main()"
    words = ["cloud-stand-in", "--engine", "simulated", "--name", "large"]
    process = subprocess.Popen(
        [sys.executable, "-c", command, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    with Asking(process.stdout.readline().strip()) as asking:
        said, end = asking.answer()
        assert said.startswith("This is the simulated engine.") and not end.error
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert errors.lstrip() == "timely-llm: ended by SIGINT; nothing is left running\n"
    assert process.returncode == 130
