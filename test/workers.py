"""What each of several workers of pytest-xdist runs."""

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController


class FromBothEnds(LoadScopeScheduling):  # type: ignore[misc]
    """The first worker takes files of tests from the front, each other one from the back.

    Tests with real processes come first. So one worker runs them, until none of the others is left:
    a server and its robots need a core of their own. Tests of a file share what they have computed.
    (With pytest 9.2, pytest-xdist 3.8 forgets the groups of `--dist loadgroup`.)
    """

    def _split_scope(self, nodeid: str) -> str:
        """Return the name of the tests that one worker runs together: their file."""
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give a worker the next file."""
        if node is not self.nodes[0]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
