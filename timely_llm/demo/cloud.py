"""The stand-in for a cloud in a demo's run: a process that is killed midway."""

from __future__ import annotations

import signal

from timely_llm.core.events.history import History
from timely_llm.demo.files import Files
from timely_llm.demo.settings import DemoSettings
from timely_llm.processes.children import Child, Children, Interrupts, wait

CUT_AT, CUT_BEFORE = 0.4, 0.5
"""Shares of the run's duration: from the first on, the cloud is cut off while it writes a sketch,
at the second in any case."""
START_LIMIT_S = 120.0


class DemoHistory(History):
    """The history of a demo's run, with what the demo did and no log says.

    Attributes:
        cloud_cut_s: when the demo cut its cloud off, seconds of the monotonic clock; None: it did
            not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cloud_cut_s: float | None = None


class DemoCloud:
    """Starts the stand-in, waits for its URL, and kills it midway.

    Args:
        settings: of the demo.
        files: of the run.
        children: take the process.
        interrupts: the user's.
        history: of the run; the time of the cut is entered there.

    Attributes:
        url: base of its interface.

    Raises:
        ProcessError: it could not be started.
        Interrupted: the user asked to end.
    """

    def __init__(
        self, settings: DemoSettings, files: Files, children: Children, interrupts: Interrupts,
        history: DemoHistory,
    ) -> None:  # fmt: skip
        self._duration_s, self._history = settings.duration_s, history
        self._child = children.start(
            "stand-in for a cloud", settings.stand_in_command(), settings.environment,
            files.output("cloud"),
        )  # fmt: skip
        what = "the stand-in for a cloud was not ready"
        wait(self._child, lambda: bool(printed_url(self._child)), interrupts, START_LIMIT_S, what)
        self.url = printed_url(self._child)

    def tick(self, now_s: float) -> None:
        """Kill the stand-in if it is time."""
        history = self._history
        if history.began_s is None or history.cloud_cut_s is not None:
            return
        share = (now_s - history.began_s) / self._duration_s
        asking = (talk for talk in history.questions if talk.asks_help and not talk.generated)
        sketches = any(talk.part == 0 for talk in asking)
        if share >= (CUT_AT if sketches else CUT_BEFORE):
            self._child.send(signal.SIGKILL)
            history.cloud_cut_s = now_s


def printed_url(stand_in: Child) -> str:
    """Return the URL that a stand-in for a cloud has printed; empty: none yet."""
    lines = stand_in.log.read_text(errors="replace").splitlines(keepends=True)
    whole = (line.strip() for line in lines if line.endswith("\n"))
    return next((line for line in whole if line.startswith("http://")), "")
