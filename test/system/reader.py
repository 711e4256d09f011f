"""A reader that follows a page literally, in a new folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from test.system.conftest import ROOT, ros_environment
from test.system.page import Step

WAIT_S = 120.0


class Reader:
    """A reader that types the commands of a page, in a new folder."""

    def __init__(self, folder: Path, domain: int) -> None:
        self._folder = folder
        self._environment = os.environ | ros_environment(domain) | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            "COLUMNS": "80",
        }  # fmt: skip
        self._server: subprocess.Popen[str] | None = None
        self._log = folder / "server.log"
        self._seen = 0

    def follow(self, step: Step) -> str:
        """Do what a step says; return what is printed."""
        if step.kind == "file":
            (self._folder / step.name).write_text(step.text)
            return step.text
        if step.kind == "interrupt":
            return self._interrupt()
        if step.name.startswith("timely-llm serve "):
            return self._serve(step.name)
        return subprocess.run(
            ["bash", "-c", step.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            cwd=self._folder, env=self._environment, timeout=WAIT_S,
        ).stdout  # fmt: skip

    def close(self) -> None:
        """End a server that still runs."""
        if self._server is not None:
            self._interrupt()

    def _serve(self, command: str) -> str:
        with self._log.open("w") as log:
            self._server = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], stdout=log, stderr=subprocess.STDOUT, text=True,
                cwd=self._folder, env=self._environment, start_new_session=True,
            )  # fmt: skip
        deadline_s = time.monotonic() + WAIT_S
        while " ready: " not in (text := self._log.read_text()) or not text.endswith("\n"):
            assert self._server.poll() is None, text
            assert time.monotonic() < deadline_s, text
            time.sleep(0.05)
        self._seen = len(text)
        return text

    def _interrupt(self) -> str:
        assert self._server is not None, "no server runs"
        server, self._server = self._server, None
        server.send_signal(signal.SIGINT)
        try:
            server.wait(WAIT_S)
        finally:
            server.kill()
            server.wait()
        return self._log.read_text()[self._seen :]
