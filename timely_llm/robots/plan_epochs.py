"""Which epochs of a plan are executed."""

from __future__ import annotations


class PlanEpochs:
    """The rule by which segments are executed or ignored.

    A newer epoch makes all older ones void. A failed segment makes its own epoch void.

    Attributes:
        newest: the newest epoch that was followed.
        failed: the newest epoch in which a segment failed; -1: none.
    """

    def __init__(self) -> None:
        self.newest = 0
        self.failed = -1

    def void(self, epoch: int) -> bool:
        """Return whether the segments of an epoch are ignored."""
        return epoch < self.newest or epoch <= self.failed

    def follow(self, epoch: int) -> bool:
        """Go over to an epoch unless it is void; return whether its segments are executed."""
        if self.void(epoch):
            return False
        self.newest = epoch
        return True

    def fail(self, epoch: int) -> None:
        """Make an epoch, and all before it, void."""
        self.failed = max(self.failed, epoch)
