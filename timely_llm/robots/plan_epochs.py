"""Which epochs of a plan are executed."""

from __future__ import annotations

import logging
from collections.abc import Callable

from timely_llm.core.text import quoted

log = logging.getLogger(__name__)


class PlanEpochs:
    """The rule by which segments are executed or ignored.

    A newer epoch makes all older ones void. A failed segment makes its own epoch void. A newer
    epoch is followed only if its robot has caused it: it is the next one after a failed epoch. A
    dispatcher also moves plans, and a cloud or replicas replace them: at such a server any newer
    epoch is followed.

    Args:
        replaces: returns whether the server replaces plans that did not fail.

    Attributes:
        newest: the newest epoch that was followed.
        failed: the newest epoch in which a segment failed; -1: none.
        foreign: segments and results of epochs that the robot did not cause; they were ignored.
    """

    def __init__(self, replaces: Callable[[], bool] = lambda: False) -> None:
        self._replaces = replaces
        self.newest = 0
        self.failed = -1
        self.foreign = 0

    def void(self, epoch: int) -> bool:
        """Return whether the segments of an epoch are ignored."""
        return epoch < self.newest or epoch <= self.failed

    def caused(self, epoch: int) -> bool:
        """Return whether an epoch is the newest one, an older one, or one that may follow it."""
        return epoch <= max(self.newest, self.failed + 1) or self._replaces()

    def follow(self, epoch: int, request_id: str = "") -> bool:
        """Go over to an epoch unless it is ignored; return whether its segments are executed.

        Args:
            epoch: of a segment or a result.
            request_id: the plan's, for the log, which has the first ignored one.
        """
        if self.void(epoch):
            return False
        if not self.caused(epoch):
            self.foreign += 1
            if self.foreign == 1:
                log.warning(
                    "epoch %s of request %s is not executed: its robot reported no failure of epoch"
                    " %s", epoch, quoted(request_id), epoch - 1,
                )  # fmt: skip
            return False
        self.newest = epoch
        return True

    def adopt(self, epoch: int) -> None:
        """Go over to an epoch that the server named when it was asked for the plan."""
        self.newest = max(self.newest, epoch)

    def fail(self, epoch: int) -> None:
        """Make an epoch, and all before it, void."""
        self.failed = max(self.failed, epoch)
